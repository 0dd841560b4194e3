"""The steward's desk: a web page on this machine that runs our own commands, one after another, and shows each.

It computes nothing of its own: every button is a command of `dualquery` that is run beside it, with its words on the
page (`commands`, `jobs`). What it adds is a way to edit a schema by hand (`columns`). It listens at 127.0.0.1 alone,
answers nobody without the token in its link, and nothing that its page loads comes from elsewhere (`app`).

The curator is the one who sits here. The page shows what the curator's own screen may show: names of files and
columns, and the values that a draft found, marked as private until the curator says that they are public. It never
sends a row of the table.
"""
