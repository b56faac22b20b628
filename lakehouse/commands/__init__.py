"""The commands: they parse, call and print. A command's module is imported when the command is used."""
