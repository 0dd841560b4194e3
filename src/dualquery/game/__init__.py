"""The query release game: moves, players, play."""
