"""Who signs for an encrypted server that the machine does not know: a PEM file that an address names (`?ca=`)."""

from __future__ import annotations

from pathlib import Path

from lakehouse.errors import SettingsError

_CERTIFICATE = "-----BEGIN CERTIFICATE-----"


def certificates(file: str, setting: str) -> str:
    """Text of a PEM file with the certificates of those who sign for a server.

    Args:
        file: its path.
        setting: whose address names it, for messages.

    Raises:
        SettingsError: it cannot be read, or holds no certificate.
    """
    try:
        text = Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "no text"
        raise SettingsError(f"{setting}: ca={file} cannot be read: {why}.") from None
    if _CERTIFICATE not in text:
        raise SettingsError(f"{setting}: ca={file} holds no certificate in PEM form ({_CERTIFICATE}).")
    return text
