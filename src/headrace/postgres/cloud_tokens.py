"""Ask a cloud for the token that stands in the place of a password: RDS and Aurora, Azure, Cloud SQL.

Each process asks with the identity that its machine or pod has there, so no secret is stored or sent to
executors. A token is asked for at each connect: that of AWS is made here and lives for 15 minutes, the
libraries of the others keep one and renew it before it ends. Sessions that are open outlive their token.
"""

from __future__ import annotations

import functools
import logging
import os
import re
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from headrace.errors import HeadraceError, Kind, unexpected
from headrace.postgres.address import Address

_RDS_HOST = re.compile(r"\.(?P<region>[a-z]{2,}(?:-[a-z0-9]+)+)\.rds\.amazonaws\.com")
_AWS_SECONDS = 900
_AZURE_SCOPE = "https://ossrdbms-aad.database.windows.net/.default"
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/sqlservice.login"
_LIBRARIES = ("botocore.", "azure.", "google.auth.")
"""The modules of errors whose own text says what is wrong, and quotes no secret."""
_GIVE_IDENTITY = "Give this machine or pod an identity of that cloud which may log in."


def cloud_token(cloud: str, address: Address) -> str:
    """Return a token for the server and the user of `address`.

    Raises:
        HeadraceError: CONFIG, DEPENDENCY; PASSWORD_COMMAND where the cloud gives none now.
    """
    try:
        return _CLOUDS[cloud](address)
    except ImportError as error:
        raise HeadraceError(
            Kind.DEPENDENCY,
            f"iam:{cloud} needs {error.name}, which is not installed",
            f"Install headrace[{cloud}] wherever the database is read.",
        ) from error
    except HeadraceError:
        raise
    except Exception as error:
        if type(error).__module__.startswith(_LIBRARIES):
            raise _no_token(cloud, str(error)) from error
        # The libraries pass on what a missing file or a broken answer raises.
        raise unexpected(
            f"iam:{cloud} got no token for the database", error, Kind.PASSWORD_COMMAND, _GIVE_IDENTITY
        ) from error


def _aws_token(address: Address) -> str:
    from botocore.auth import SigV4QueryAuth  # noqa: PLC0415 - an extra
    from botocore.awsrequest import AWSRequest  # noqa: PLC0415

    logging.getLogger("botocore").setLevel(logging.INFO)  # below that it shows tokens
    given = address.completed
    host, user, port = given.get("host", ""), given.get("user", ""), given.get("port") or "5432"
    if not host or not user or "," in host:
        raise HeadraceError(
            Kind.CONFIG, "iam:aws needs one host and a user in the connection string", "Name both there."
        )
    session = _aws_session()
    region = _aws_region(host, session)
    credentials = session.get_credentials()
    if credentials is None:
        raise _no_token("aws", "no credentials were found")
    request = AWSRequest("GET", f"https://{host}:{port}/", params={"Action": "connect", "DBUser": user})
    SigV4QueryAuth(credentials.get_frozen_credentials(), "rds-db", region, _AWS_SECONDS).add_auth(request)
    return str(request.url).removeprefix("https://")


def _aws_region(host: str, session: Any) -> str:
    found = _RDS_HOST.search(host)
    # botocore itself does not know AWS_REGION, which pods and functions of AWS have.
    region = (
        found["region"] if found else os.environ.get("AWS_REGION") or session.get_config_variable("region")
    )
    if region is None:
        raise HeadraceError(
            Kind.CONFIG,
            f"the host {host} does not name a region of AWS",
            "Name the server by its address of RDS, or set AWS_REGION.",
        )
    return str(region)


def _azure_token(_: Address) -> str:
    return str(_azure_identity().get_token(_AZURE_SCOPE).token)


def _google_token(_: Address) -> str:
    from google.auth.transport.urllib3 import Request  # noqa: PLC0415 - an extra
    from urllib3 import PoolManager  # noqa: PLC0415

    credentials = _google_identity()
    if not credentials.valid:
        credentials.refresh(Request(PoolManager()))  # type: ignore[no-untyped-call]
    return str(credentials.token)


@functools.cache
def _aws_session() -> Any:
    import botocore.session  # noqa: PLC0415

    return botocore.session.Session()


@functools.cache
def _azure_identity() -> Any:
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415

    return DefaultAzureCredential()


@functools.cache
def _google_identity() -> Any:
    import google.auth  # noqa: PLC0415

    return google.auth.default(scopes=[_GOOGLE_SCOPE])[0]


def _no_token(cloud: str, why: str) -> HeadraceError:
    first_line = next(iter(why.splitlines()), "")
    return HeadraceError(
        Kind.PASSWORD_COMMAND,
        f"iam:{cloud} got no token for the database: {first_line[:300]}",
        _GIVE_IDENTITY,
    )


_CLOUDS: MappingProxyType[str, Callable[[Address], str]] = MappingProxyType(
    {"aws": _aws_token, "azure": _azure_token, "google": _google_token}
)
