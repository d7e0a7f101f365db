"""Convert the text that PostgreSQL prints to typed Arrow values and to JSON."""

from headrace.model.values.columns import ColumnTexts, column_texts
from headrace.model.values.conversion import Converted
from headrace.model.values.convert import convert, convert_all, convert_fitting, rescued
from headrace.model.values.json_form import json_form

__all__ = [
    "ColumnTexts",
    "Converted",
    "column_texts",
    "convert",
    "convert_all",
    "convert_fitting",
    "json_form",
    "rescued",
]
