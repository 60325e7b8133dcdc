"""The prompts that are sent without ``--prompts``: short, of five kinds of text, written for this.

What is accepted of drafts depends on the kind of text: measure with prompts of your own traffic
where there are any.
"""

from __future__ import annotations

PROMPTS: dict[str, tuple[str, ...]] = {
    "code": (
        "Write a Python function that returns the n-th Fibonacci number without recursion.",
        "Write a SQL query that lists the ten customers with the highest total of orders.",
        "Explain what this loop does and make it shorter: for i in range(len(a)): b.append(a[i]*2)",
        "Write a shell command that counts the lines of every text file below a folder.",
        "Write a JavaScript function that checks whether two strings are anagrams.",
        "Write a unit test for a function that parses dates such as 2024-02-29.",
    ),
    "chat": (
        "What should I pack for a weekend of hiking in the rain?",
        "Explain to a child why the sky is blue in the day and red in the evening.",
        "Suggest a name for a small bakery that also repairs bicycles, and say why it fits.",
        "How do I tell a colleague that his meetings are too long?",
        "What is the difference between weather and climate?",
        "Give me a simple recipe with lentils, carrots and rice.",
    ),
    "prose": (
        "Write the opening of a story about a lighthouse keeper who is afraid of the dark.",
        "Describe a railway station at five in the morning.",
        "Write a short letter from a grandmother to a grandson who has moved abroad.",
        "Continue: The map was wrong in only one place, and that was where we stood.",
        "Write a paragraph about a river as seen by the bridge above it.",
        "Describe the sound of a workshop to someone who has never been in one.",
    ),
    "maths": (
        "A train covers 240 km in three hours and then 90 km in one hour. What is its mean speed?",
        "Six painters need four days for a house. How long do eight painters need? Show the steps.",
        "Find all whole numbers below 60 that leave a remainder of 3 when divided by 7.",
        "A jacket costs 80 after a discount of 20 percent. What did it cost before?",
        "How many handshakes are there when nine people each greet everyone else once?",
        "The sum of three consecutive even numbers is 78. Which numbers are they?",
    ),
    "extract": (
        "List names and towns as JSON: Ada lives in Turin, Bo in Malmo, and Cem moved to Izmir.",
        "Which of these are fruits? bolt, pear, gravel, plum, hinge, apricot. Answer with a list.",
        "Sum up in one sentence: The meeting was moved from Monday to Wednesday since the room was "
        "taken, and the printed agenda still shows the old day.",
        "Give date, amount and shop: On 3 May I paid 12.50 at the garden centre for two pots.",
        "Turn into a table: pump 4 runs at 1450 rpm, pump 5 at 980 rpm, pump 6 stands still.",
        "Translate the error into plain words: connection reset by peer while reading header.",
    ),
}
