"""Convert the files of other tools to Headrace's."""

from headrace.tools.convert.pgsync import CONFIG, Conversion, convert_pgsync

__all__ = ["CONFIG", "Conversion", "convert_pgsync"]
