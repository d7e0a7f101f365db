"""What Spark says of a Python process that is gone is told from its other failures."""

from __future__ import annotations

import pytest

from headrace.errors import Kind
from headrace.spark.failures import headrace_error

_POOL = """An error occurred while calling o451.load.
: java.io.IOException: Stream closed
	at java.base/java.lang.ProcessBuilder$NullOutputStream.write(ProcessBuilder.java:445)
	at java.base/java.io.OutputStream.write(OutputStream.java:167)
	at org.apache.spark.api.python.PythonWorkerFactory.$anonfun$stopWorker$2(PythonWorkerFactory.scala:527)
	at org.apache.spark.SparkEnv.createPythonWorker(SparkEnv.scala:326)
"""
_READER = """java.io.EOFException
	at java.base/java.io.DataInputStream.readInt(DataInputStream.java:397)
	at org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner.latestOffset(x.scala:235)
"""
_TASK = "Lost task 0.2 in stage 2.0: SparkException: Python worker exited unexpectedly (crashed)"
_LATE = """org.apache.spark.SparkException: Python worker failed to connect back.
	at org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker(PythonWorkerFactory.scala:300)
Caused by: java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back
	at org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker(PythonWorkerFactory.scala:285)
"""
_DISK = """java.io.IOException: No space left on device
	at java.base/java.io.FileOutputStream.writeBytes(Native Method)
	at org.apache.spark.sql.execution.streaming.checkpointing.HDFSMetadataLog.write(HDFSMetadataLog.scala:140)
	at org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream.commit(x.scala:9)
"""


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (_POOL, Kind.WORKER_LOST),
        (_READER, Kind.WORKER_LOST),
        (_TASK, Kind.WORKER_LOST),
        (_LATE, Kind.WORKER_LOST),
        (_DISK, Kind.SPARK),
        (f"{_TASK}\nHeadraceError: [HEADRACE_TRANSFORM] its function failed", Kind.TRANSFORM),
    ],
)
def test_only_a_process_that_is_gone_is_waited_for(text: str, kind: Kind) -> None:
    assert headrace_error(RuntimeError(text)).kind is kind


def test_the_line_that_is_shown_is_none_of_the_stack() -> None:
    assert headrace_error(RuntimeError(_DISK)).cause == (
        "Spark stopped: java.io.IOException: No space left on device"
    )


def test_the_line_that_is_shown_is_the_cause_and_nothing_that_the_jvm_suppressed() -> None:
    text = """An error occurred while calling o150.start.
: java.lang.ClassNotFoundException: org.apache.spark.Manager
	at java.base/java.net.URLClassLoader.findClass(URLClassLoader.java:445)
	Suppressed: org.apache.spark.util.Utils$OriginalTryStackTraceException: Full stacktrace
		at java.base/java.net.URLClassLoader.findClass(URLClassLoader.java:445)
"""
    assert headrace_error(RuntimeError(text)).cause == (
        "Spark stopped: java.lang.ClassNotFoundException: org.apache.spark.Manager"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_TASK, "a Python process of Spark has ended"),
        (_LATE, "Spark waited ten seconds in vain for a Python process to start"),
    ],
)
def test_a_process_that_has_ended_is_told_from_one_that_did_not_start(text: str, said: str) -> None:
    """What comes next is said by who does it: a command that ends does not start another one."""
    error = headrace_error(RuntimeError(text))
    assert error.cause.startswith(said)
    assert "started" not in str(error)
