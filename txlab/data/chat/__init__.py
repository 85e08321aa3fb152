"""Chats, preference pairs and prompts: templates, supervised answers, made-up tasks."""

from txlab.data.chat.chat import Chat
from txlab.data.chat.pairs import Pairs
from txlab.data.chat.prompts import Prompts
from txlab.data.chat.template import Template
from txlab.data.problem import Problem

__all__ = ["Chat", "Pairs", "Problem", "Prompts", "Template"]
