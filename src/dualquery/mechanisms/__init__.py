"""Who plays: a plan and a run each."""
