"""The tables of the messages that Headgate opens, one module a family; the class is the table."""
