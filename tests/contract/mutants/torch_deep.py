"""The smallest omissions in the deep networks in PyTorch, and in the CNN on MNIST."""

from bench.frameworks.torch import cnn_mnist, densenet121_chestxray, resnet50_features, resnet50_imagenet
from tests.contract.mutants.omissions import StepLeftOut, without_one
from tests.contract.mutants.registry import Planted

mnist = Planted("torch", "cnn-mnist")
densenet = Planted("torch", "densenet121-chestxray", slow=True)
features = Planted("torch", "resnet50-features", slow=True)
imagenet = Planted("torch", "resnet50-imagenet", slow=True)


@mnist.mistake("omission")
class OneChannelLeftOut(without_one(cnn_mnist.Training, "conv1.w")):
    """The last of conv1's 16 channels has weights of zero."""


@mnist.mistake("omission")
class OneBiasLeftOut(without_one(cnn_mnist.Training, "conv1.b")):
    """The last of conv1's 16 biases is zero."""


@mnist.mistake("omission")
class OneStepLeftOut(StepLeftOut, cnn_mnist.Training):
    """The third step after the parameters were loaded is skipped."""


@densenet.mistake("omission")
class OneChannelOfTheFirstLeftOut(without_one(densenet121_chestxray.Training, "features.conv0.weight")):
    """The last of the first convolution's 64 channels has weights of zero."""


@densenet.mistake("omission")
class OneClassWithoutBias(without_one(densenet121_chestxray.Training, "classifier.bias")):
    """The last of the classifier's 14 biases is zero."""


@features.mistake("omission")
class OneShiftLeftOut(without_one(resnet50_features.Inference, "bn1.bias")):
    """The last of the first normalisation's 64 shifts is zero."""


@features.mistake("omission")
class OneChannelOfTheFirstConvolutionLeftOut(without_one(resnet50_features.Inference, "conv1.weight")):
    """The last of the first convolution's 64 channels has weights of zero."""


@imagenet.mistake("omission")
class OneClassWithoutItsBias(without_one(resnet50_imagenet.Training, "fc.bias")):
    """The last of the classifier's 1000 biases is zero."""


@imagenet.mistake("omission")
class OneScaleLeftOut(without_one(resnet50_imagenet.Training, "bn1.weight")):
    """The last of the first normalisation's 64 scales is zero."""
