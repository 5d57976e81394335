"""What x_transformers.py and x_wrappers.py compare: numbers of dra with those of the library."""
import json

import x_models
from compare import difference
from safetensors.torch import load_file


def far(ours, their, least=0.0):
    return difference(ours.double().numpy(), their.numpy(), least)


def worst(pairs):
    """The largest difference and the name of its tensor."""
    return max(pairs, key=lambda pair: pair[1])


def compare_gradient(got, want):
    """Of a gradient that is 0 but for rounding, relative to the largest of all."""
    grads = {name: want[name] for name in want["names"]}
    most = max(d.abs().max().item() for d in grads.values())
    zero = {name for name, d in grads.items() if d.abs().max() < 1e-12 * most}
    return worst([("loss", far(got["loss"].reshape(()), want["loss"]))]
                 + [(name, far(got[name], d, most if name in zero else 0.0))
                    for name, d in grads.items()])


def load_strictly(folder):
    """A model as the library makes it of a folder that dra has written."""
    with open(f"{folder}/config.json") as f:
        config = json.load(f)
    model = x_models.in_double(x_models.build(config))
    model.load_state_dict(load_file(f"{folder}/model.safetensors"), strict=True)
    return model


def there_and_back(side):
    """A folder through dra's own format."""
    own, back = f"{side.work}/own", f"{side.work}/back"
    side.call("convert", "--from", side.folder, "--to", own, "--check", "--threads", "1")
    side.call("convert", "--from", own, "--to", back, "--as", "x-transformers", "--check",
              "--threads", "1")
    return load_strictly(back)


def changed(again, model):
    """The name of a parameter that is not what it was."""
    for (name, a), (other, b) in zip(again.named_parameters(), model.named_parameters(),
                                     strict=True):
        if name != other or not a.equal(b):
            return name
    return None
