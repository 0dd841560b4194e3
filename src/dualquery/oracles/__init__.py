"""Best responses to weighted clauses."""
