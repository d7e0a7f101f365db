"""What logs and `/status` show quotes no values of rows; who may see rows is told all."""

from __future__ import annotations

import json
import pickle

import pytest

from headrace.errors import HeadraceError, Kind, unexpected, without_values
from headrace.postgres.server_errors import is_refused_row, statement_error
from headrace.sinks.opensearch import bulk, failures
from headrace.spark.failures import headrace_error, short_traceback
from headrace.status.board import StatusBoard

URL = "postgresql://u@db/shop"


def of_a_document(kind: str, reason: str, cause: object = None) -> dict[str, object]:
    return {"type": kind, "reason": reason, **({"caused_by": cause} if cause else {})}


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (
            of_a_document(
                "mapper_parsing_exception",
                "failed to parse field [born] of type [date] in document with id 's3cret'. "
                "Preview of field's value: 's3cret'",
                of_a_document(
                    "illegal_argument_exception",
                    "failed to parse date field [s3cret] with format [strict_date]",
                    of_a_document("date_time_parse_exception", "s3cret"),
                ),
            ),
            (
                "mapper_parsing_exception of illegal_argument_exception of date_time_parse_exception: "
                "failed to parse field [born] of type [date]"
            ),
        ),
        (
            of_a_document(
                "illegal_argument_exception",
                'Document contains at least one immense term in field="name" (whose UTF8 encoding is longer '
                "than the max length 32766), ... the prefix of the first immense term is: '[115, 51]...'",
                of_a_document("max_bytes_length_exceeded_exception", "bytes can be at most 32766 in length"),
            ),
            (
                "illegal_argument_exception of max_bytes_length_exceeded_exception: "
                'Document contains at least one immense term in field="name"'
            ),
        ),
        (
            of_a_document(
                "strict_dynamic_mapping_exception",
                "mapping set to strict, dynamic introduction of [x] within [_doc] is not allowed",
            ),
            (
                "strict_dynamic_mapping_exception: "
                "mapping set to strict, dynamic introduction of [x] within [_doc] is not allowed"
            ),
        ),
        (
            of_a_document("input_coercion_exception", "Numeric value (s3cret) out of range of int"),
            "input_coercion_exception",
        ),
        ("s3cret", "no reason that could be shown"),
    ],
)
def test_a_refusal_is_shown_with_its_types_and_the_field(error: object, shown: str) -> None:
    assert failures.describe_without_values(error) == shown
    assert failures.reason_without_values(json.dumps({"error": error, "status": 400}).encode()) == shown
    assert "s3cret" not in shown
    if isinstance(error, dict):
        assert str(error["reason"]) in failures.describe(error), "who may see documents is told all"


def test_a_cluster_that_cannot_now_quotes_the_request_and_nobody_shows_it() -> None:
    said = of_a_document(
        "unavailable_shards_exception",
        "[users][0] primary shard is not active Timeout: [1m], request: [BulkShardRequest [[users][0]] "
        'containing [index {[users][7], source[{"name":"s3cret"}]}]]',
    )
    shown = "unavailable_shards_exception: [users][0] primary shard is not active Timeout: [1m]"
    assert failures.describe_without_request(said) == shown
    data = json.dumps({"error": said, "status": 503}).encode()
    assert str(failures.from_status(503, data, "node:9200")).count(shown) == 1
    assert "s3cret" not in str(failures.from_status(503, data, "node:9200"))
    answer = {"errors": True, "items": [{"index": {"status": 503, "error": said}}]}
    item = bulk.Item("users", "7", delete=False, lines=b"")
    assert bulk.judge(json.dumps(answer).encode(), [item]).fatal == (bulk.Outcome.BLOCKED, item, shown)


@pytest.mark.parametrize(
    ("state", "said", "shown"),
    [
        ("22P02", 'invalid input syntax for type integer: "s3cret"', "invalid_text_representation"),
        ("22003", 'value "s3cret" is out of range for type integer', "numeric_value_out_of_range"),
        ("22012", "division by zero", "division_by_zero"),
        ("P0001", "no account like s3cret", "raise_exception"),
        ("ZZ001", "no account like s3cret", "an error that a function raises"),
        ("23514", 'value s3cret is not allowed, says "a_check"', "check_violation"),
        (
            "XX000",
            "invalid memory alloc request size 1500000005",
            "invalid memory alloc request size 1500000005",
        ),
        ("XX000", "transform: couldn't project point (180 -90 0)", "internal_error"),
        ("42703", 'column "nmae" does not exist', 'column "nmae" does not exist'),
    ],
)
def test_the_server_is_quoted_where_it_speaks_of_names(state: str, said: str, shown: str) -> None:
    error = statement_error(state, said, URL)
    assert str(error) == f"[HEADRACE_DATABASE] the database says: {shown} (SQLSTATE {state})"
    assert error.full_cause == f"the database says: {said} (SQLSTATE {state})"
    assert is_refused_row(error) is (state[:2] in {"22", "P0"} or state in {"23514", "XX000"})


def test_foreign_errors_are_shown_up_to_what_they_quote() -> None:
    assert without_values("invalid literal for int() with base 10: 's3cret'").endswith("base 10 …")
    assert without_values("Syntaxe invalide : \u00ab s3cret \u00bb") == "Syntaxe invalide …"
    assert without_values("Java heap space") == "Java heap space"
    found = unexpected("reading the log failed", ValueError("no number: 's3cret'"))
    assert found.cause == "reading the log failed: ValueError: no number …"
    assert "s3cret" in found.full_cause
    assert unexpected("it failed", KeyError("s3cret")).cause == "it failed: KeyError: …"
    spark = headrace_error(RuntimeError("Job aborted\npyarrow.lib.ArrowInvalid: x\nValueError: bad 's3cret'"))
    assert spark.cause == "Spark stopped: ValueError: bad …"


def test_the_whole_cause_goes_along_with_the_error_and_not_with_its_text() -> None:
    error = HeadraceError(Kind.DATABASE, "a cause", "A remedy.", "a cause with s3cret")
    again = pickle.loads(pickle.dumps(error))
    assert (again.full_cause, str(again)) == ("a cause with s3cret", "[HEADRACE_DATABASE] a cause. A remedy.")
    board = StatusBoard(["users"])
    board.record_error(again)
    assert "s3cret" not in json.dumps(board.snapshot())


def test_a_session_of_a_user_who_reads_rows_is_told_all() -> None:
    with pytest.raises(HeadraceError, match="s3cret"), short_traceback(with_values=True):
        raise HeadraceError(Kind.DATABASE, "a cause", "", "a cause with s3cret")
    with pytest.raises(HeadraceError) as shown, short_traceback():
        raise HeadraceError(Kind.DATABASE, "a cause", "", "a cause with s3cret")
    assert "s3cret" not in str(shown.value)
