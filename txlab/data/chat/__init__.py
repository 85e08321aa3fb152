"""Chats and preference pairs: templates, supervised answers, made-up tasks."""

from txlab.data.chat.chat import Chat
from txlab.data.chat.conversations import Problem
from txlab.data.chat.pairs import Pairs
from txlab.data.chat.template import Template

__all__ = ["Chat", "Pairs", "Problem", "Template"]
