"""Sign requests for domains of Amazon OpenSearch Service (AWS Signature Version 4).

botocore finds the credentials as every AWS tool does (variables, profile, role of the pod or the machine),
and renews those that end. They stay in the process that signs: an executor finds its own.
"""

from __future__ import annotations

import functools
import logging
from typing import Any
from urllib.parse import quote

from headrace.errors import HeadraceError, Kind, unexpected

_SERVICE = "es"
"""What Amazon OpenSearch Service is called in signatures."""

_NO_CREDENTIALS = "no AWS credentials to sign the requests of the sink with"
_GIVE_CREDENTIALS = (
    "Give this machine or pod a role, or set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
)


class Signer:
    """Signs requests to one region's domains; thread-safe.

    Raises:
        HeadraceError: DEPENDENCY, where botocore is not installed.
    """

    def __init__(self, region: str) -> None:
        self._region = region
        try:
            import botocore.auth  # noqa: PLC0415 - an extra
            import botocore.awsrequest  # noqa: PLC0415
            import botocore.exceptions  # noqa: PLC0415
        except ImportError as error:
            raise HeadraceError(
                Kind.DEPENDENCY,
                "aws_region of the sink needs botocore, which is not installed",
                "Install headrace[aws] wherever documents are written.",
            ) from error
        self._errors = (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError)
        self._auth = botocore.auth.SigV4Auth
        self._request = botocore.awsrequest.AWSRequest
        logging.getLogger("botocore").setLevel(logging.INFO)  # below that it shows tokens

    def headers(self, method: str, url: str, body: bytes | None) -> dict[str, str]:
        """Return the headers that sign one request as it is sent now.

        Raises:
            HeadraceError: SINK_UNREACHABLE, where there are no credentials now.
        """
        # AWS encodes the query before it verifies, and botocore signs it as it stands.
        place, mark, query = url.partition("?")
        encoded = f"{place}{mark}{quote(query, safe='%=&')}"
        # The signature covers the body and the time: each attempt needs its own.
        request = self._request(method, encoded, data=body)
        try:
            self._auth(_credentials().get_frozen_credentials(), _SERVICE, self._region).add_auth(request)
        except self._errors as error:
            raise _no_credentials(str(error)) from error
        except HeadraceError:
            raise
        except Exception as error:  # botocore passes on what a missing file or a broken answer raises
            raise unexpected(_NO_CREDENTIALS, error, Kind.SINK_UNREACHABLE, _GIVE_CREDENTIALS) from error
        return dict(request.headers.items())


@functools.cache
def _credentials() -> Any:
    """Return the credentials of this process, which renew themselves."""
    import botocore.session  # noqa: PLC0415

    found = botocore.session.Session().get_credentials()
    if found is None:
        raise _no_credentials("none were found")
    return found


def _no_credentials(why: str) -> HeadraceError:
    return HeadraceError(Kind.SINK_UNREACHABLE, f"{_NO_CREDENTIALS}: {why}", _GIVE_CREDENTIALS)
