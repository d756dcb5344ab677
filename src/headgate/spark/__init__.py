"""For jobs on Spark, Headgate's and anybody's: a streaming query tells what it reads, keeps and writes.

`describe.listen(spark, TopologyFacts(...))` is all that a job has to say. Nothing here knows the gateway, the pipeline
or the tables, so a job that imports it needs PySpark and Headgate's base and nothing more.
"""
