"""Foreign rollouts: read with a report about every field, and written with what cannot be said there."""

from console.kit.errors import Invalid
from rollouts.exchange import argo, flagger
from rollouts.exchange.report import Imported, documents
from rollouts.plan import parse


def read(text: str) -> Imported:
    """An Argo Rollout with its templates, or a Flagger Canary. Raises Invalid for a text that is neither.

    What comes back as a strategy has been read as one, so it can be saved as it is.
    """
    try:
        found = documents(text)
    except ValueError as error:
        raise Invalid("The text cannot be read.", fields={"text": str(error)}) from None
    kinds = {one.get("kind") for one in found}
    if "Canary" in kinds:
        imported = flagger.read(found)
    elif "Rollout" in kinds:
        imported = argo.read(found)
    else:
        why = f"holds no Rollout of Argo and no Canary of Flagger, but {', '.join(sorted(map(str, kinds)))}"
        raise Invalid("The text cannot be read.", fields={"text": why})
    if imported.strategy is None:
        return imported
    try:
        parse(imported.strategy)
    except Invalid as error:
        for path, why in error.fields.items():
            imported.report.refused(path, why)
        return Imported(imported.kind, imported.name, None, imported.report)
    return imported
