"""How does the text that PostgreSQL prints become a typed value, and its JSON?"""

from headrace.model.values.conversion import Converted
from headrace.model.values.convert import convert, convert_all
from headrace.model.values.json_form import json_form

__all__ = ["Converted", "convert", "convert_all", "json_form"]
