"""Audits a folder on Spark, whose executors see it: spark-submit on_spark.py DIR."""

import sys

from pyspark.sql import SparkSession

import counterweight_rl as cw
from counterweight_rl import audit

if __name__ == "__main__":
    spec = audit.Spec(methods={"token_tis": cw.Preset("token_tis")})
    units = [(each.path, each.group) for each in audit.units(sys.argv[1])]
    with SparkSession.builder.getOrCreate() as session:
        places = session.sparkContext.parallelize(units, len(units))
        whole = places.map(lambda place: audit.unit(*place, spec)).treeReduce(audit.merge)
    print(audit.report(whole, spec).digest)
