"""Words that carry no answer by themselves."""

from __future__ import annotations

_COMMON = """a an and are as at be by can did do does for from had has have he her his how i in is it its of on or our
she that the their them there they this to was we were what when where which who whom whose why will with you your"""
_ANSWERING = """answer answers believe called final hence known named one say says so then therefore think thus
would"""
_DENYING = "cannot isnt neither never nor not wasnt arent werent dont doesnt didnt"
_CHOOSING = "alternatively either maybe or perhaps possibly"
COMMON = frozenset(_COMMON.split())  # function words, also of questions
ANSWERING = frozenset(_ANSWERING.split())  # what people put around an answer
DENYING = frozenset(_DENYING.split())  # what turns an answer into its opposite
CHOOSING = frozenset(_CHOOSING.split())  # what puts several answers side by side
