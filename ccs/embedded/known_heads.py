"""A former name of this package, for one file that is being edited."""

from ccs.embedded import Lesson as Lesson
