"""Convert the files of other tools to Headrace's."""

from headrace.tools.convert.pgsync import Conversion, convert_pgsync

__all__ = ["Conversion", "convert_pgsync"]
