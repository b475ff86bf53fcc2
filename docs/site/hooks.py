"""Links of the documents that lead out of docs/ go to the repository on the site."""

import re

OUTSIDE = re.compile(r"\]\((?:\.\./)+((?:deploy|test|fsm|partition|cluster|amqp|admin|cmd|[A-Z]+\.md)[^)\s]*)\)")


def on_page_markdown(markdown, config, **_):
    return OUTSIDE.sub(lambda hit: f"]({config.repo_url.rstrip('/')}/blob/main/{hit.group(1)})", markdown)
