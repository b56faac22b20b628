"""Commands that show: they change no table. Some write a file: a report, a training set, the locked columns."""
