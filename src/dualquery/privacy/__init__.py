"""The curator's room: who may see counts, and what it costs."""
