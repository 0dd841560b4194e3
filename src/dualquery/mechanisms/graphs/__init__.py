"""Graphs: tables over coarsenings raked together, and the learner of Frieze and Kannan."""
