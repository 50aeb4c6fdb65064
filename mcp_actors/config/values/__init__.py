"""Values that may hold a credential: expansion, `Secret`, masking.

Imported by the transports and the readers of files, and by code that logs a command line or a URL. This room uses the
validators of the folder around it and nothing else of it.
"""

from __future__ import annotations

from ._expand import (
    FROM_FILE as FROM_FILE,
    INPUT as INPUT,
    Part as Part,
    Reference as Reference,
    expand as expand,
    literal as literal,
    parse as parse,
    references as references,
)
from ._masking import (
    MASK as MASK,
    ExpandedUrl as ExpandedUrl,
    hidden_args as hidden_args,
    literal_secrets as literal_secrets,
    mask_args as mask_args,
    mask_url as mask_url,
)
from ._resolve import (
    env_problem as env_problem,
    header_problem as header_problem,
    resolve as resolve,
    resolve_env as resolve_env,
    resolve_headers as resolve_headers,
    resolve_token as resolve_token,
    system_problem as system_problem,
    token_problem as token_problem,
)
from ._secret import (
    NO_VALUES as NO_VALUES,
    ConfigValue as ConfigValue,
    NamedValues as NamedValues,
    Secret as Secret,
    check_mapping as check_mapping,
    check_value as check_value,
)
