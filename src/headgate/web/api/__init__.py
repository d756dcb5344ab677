"""`/api/v1`: the estate as resources, read from the tables and from Headgate's topics. One module a resource."""
