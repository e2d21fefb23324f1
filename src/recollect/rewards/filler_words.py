"""Words that carry no answer by themselves."""

from __future__ import annotations

_COMMON = """a an and are as at be by can did do does for from had has have he her his how i in is it its of on or our
she that the their them there they this to was we were what when where which who whom whose why will with you your"""
_ANSWERING = """according answer answers article based believe called context correct document documents final given
hence information known likely most named one paragraph passage probably provided say says so text then therefore think
thus would"""
_ASKING = "how what when where which who whom whose why"
_PLACING = "at by for from in of on to with"
COMMON = frozenset(_COMMON.split())  # function words, also of questions
ANSWERING = frozenset(_ANSWERING.split())  # what people put around an answer
ASKING = frozenset(_ASKING.split())  # what a question begins with
PLACING = frozenset(_PLACING.split())  # what stands before a place or a name
