"""Uploading files to the Hub as one commit: a model's (`publishing`) and a Space's (`spaces`)."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from json import JSONDecodeError

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.utils import httpx

from .utils.errors import BabelensError, HubUnreachableError, PublishError, first_line


@dataclass(frozen=True)
class Published:
    """What an upload did.

    Attributes:
        address: of the commit that has these files.
        changed: whether it is a new commit; otherwise the repository had all files already.
    """

    address: str
    changed: bool


def committed(
    api: HfApi,
    repo_id: str,
    operations: list[CommitOperationAdd],
    message: str,
    *,
    private: bool,
    branch: str | None = None,
    kind: str = "model",
    replaced: Collection[str] = (),
) -> Published:
    """Uploads files to a repository that exists, as one commit.

    Args:
        api, repo_id, private, branch: as in `publishing.push`.
        operations: the files.
        message: that of the commit.
        kind: `model`, `dataset` or `space`.
        replaced: patterns of names; files of the repository with such a name that are not uploaded are deleted.

    Raises:
        PublishError, HubUnreachableError: as `publishing.push`.
    """
    before = api.repo_info(repo_id, repo_type=kind)
    if private and not before.private:
        raise PublishError(
            f"{repo_id} exists already and is public: make it private on the Hub, or leave out --private"
        )
    if branch is not None:
        api.create_branch(repo_id, branch=branch, repo_type=kind, exist_ok=True)
        before = api.repo_info(repo_id, repo_type=kind, revision=branch)
    present = {file.rfilename for file in before.siblings or []} - {each.path_in_repo for each in operations}
    outdated = sorted(name for name in present if any(fnmatch(name, pattern) for pattern in replaced))
    deletions = [CommitOperationDelete(name) for name in outdated]
    commit = api.create_commit(
        repo_id,
        [*operations, *deletions],
        commit_message=message,
        repo_type=kind,
        revision=branch,
        parent_commit=before.sha,  # what is deleted was chosen by its files
    )
    return Published(str(commit.commit_url), changed=commit.oid != before.sha)


@contextmanager
def upload_errors_explained(what: str, repo_id: str, api: HfApi) -> Iterator[None]:
    """Turns whatever `huggingface_hub` raises during an upload into one sentence that says what to do.

    Raises:
        HubUnreachableError: for no answer, a refusal, a page of something in between, and an upload that broke off.
        PublishError: for metadata that the Hub refuses.
    """
    failed = f"{what} could not be published as {repo_id} on {api.endpoint}"
    try:
        yield
    except BabelensError:
        raise
    except (httpx.HTTPError, JSONDecodeError) as error:
        raise HubUnreachableError(f"{failed}: {_reason(error)}") from error
    except ValueError as error:  # the metadata of the card, and errors that the storage of large files reports
        reason = " ".join(line.removeprefix("- ") for line in str(error).splitlines())
        raise PublishError(f"{failed}: {reason}") from error
    except RuntimeError as error:  # of the threads that upload large files
        cause = f" ({_reason(error.__cause__)})" if isinstance(error.__cause__, Exception) else ""
        raise HubUnreachableError(
            f"{failed}: {first_line(error)}{cause} Run the same command again: files that arrived are not sent again"
        ) from error


def _reason(error: Exception) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status == 401:
        return "the Hub does not know this token, or was given none: log in with `hf auth login`, or set HF_TOKEN"
    if status == 403:
        return "the token may not write there: give it write access at https://huggingface.co/settings/tokens"
    if status == 412:
        return "another commit was made there in the meantime: see whose it is, and run the same command again"
    return first_line(error)
