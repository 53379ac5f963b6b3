"""Primitives that draw at random."""

from __future__ import annotations

from .definition import Facts, Table, each

TABLE: Table = each(
    "DropoutGenMask DropoutGenMaskV3 DropoutGenMaskExt StandardNormal StandardLaplace UniformReal UniformInt"
    " RandomNormal Uniform Gamma Poisson Bernoulli BernoulliExt Multinomial MultinomialExt MultinomialWithReplacement"
    " RandomChoiceWithMask RandomCategorical RandpermV2 Randperm RandpermExt RandomShuffle TruncatedNormal"
    " ParameterizedTruncatedNormal RandomPoisson RandomGamma LogUniformCandidateSampler UniformCandidateSampler"
    " RandExt Randn RandnLike RandLikeExt RandInt RandIntLike NormalFloatFloat NormalFloatTensor NormalTensorFloat"
    " NormalTensorTensor UniformExt GenerateEodMask GenerateEodMaskV2 NonDeterministicInts LogNormalReverse"
    " RandomGammaGrad FractionalMaxPool FractionalAvgPool SpeedFusionAttention SampleDistortedBoundingBoxV2 Push",
    Facts(random=True),
)
