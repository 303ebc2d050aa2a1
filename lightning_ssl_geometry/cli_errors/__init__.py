"""One line for each error of the command line, by subject: it names the wrong setting."""
