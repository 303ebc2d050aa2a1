"""The papers that define the quantities of diagnostics, methods and probes."""

__all__ = [
    "ALPHA_REQ",
    "BYOL",
    "CALDER_LEE",
    "CORTES",
    "COSENTINO",
    "CRL_TAC",
    "DIRECTCLR",
    "ETHAYARAJH",
    "FACCO",
    "FORT",
    "GAO",
    "GUILLOTINE",
    "KELLER",
    "KORNBLITH",
    "LEJEPA",
    "LEVINA",
    "LIANG",
    "LIDAR",
    "PAPYAN",
    "RANKME",
    "ROY_VETTERLI",
    "RUSAK",
    "SESN",
    "SIMCLR",
    "VICREG",
    "WANG_ISOLA",
    "WU",
    "ZIMMERMANN",
]

from lightning_ssl_geometry.quantity import Paper

COSENTINO = Paper(
    "Cosentino et al. 2022", "Toward a Geometrical Understanding of Self-supervised Contrastive Learning", "2205.06926"
)
ETHAYARAJH = Paper(
    "Ethayarajh 2019",
    "How Contextual are Contextualized Word Representations? Comparing the Geometry of BERT, ELMo, and GPT-2 "
    "Embeddings",
    "1909.00512",
)
WANG_ISOLA = Paper(
    "Wang & Isola 2020",
    "Understanding Contrastive Representation Learning through Alignment and Uniformity on the Hypersphere",
    "2005.10242",
)
RANKME = Paper(
    "Garrido et al. 2023",
    "RankMe: Assessing the Downstream Performance of Pretrained Self-Supervised Representations by Their Rank",
    "2210.02885",
)
CRL_TAC = Paper(
    "Koyama et al. 2021", "Contrastive Representation Learning with Trainable Augmentation Channel", "2111.07679"
)
SIMCLR = Paper(
    "Chen et al. 2020", "A Simple Framework for Contrastive Learning of Visual Representations", "2002.05709"
)
KELLER = Paper("Keller et al. 2022", "Homomorphic Self-Supervised Learning", "2211.08282")
WU = Paper(
    "Wu et al. 2018", "Unsupervised Feature Learning via Non-Parametric Instance-level Discrimination", "1805.01978"
)
RUSAK = Paper(
    "Rusak et al. 2022",
    "Content Suppresses Style: Dimensionality Collapse in Contrastive Learning (NeurIPS 2022 workshop on "
    "self-supervised learning)",
)
ZIMMERMANN = Paper("Zimmermann et al. 2021", "Contrastive Learning Inverts the Data Generating Process", "2102.08850")
CALDER_LEE = Paper(
    "Calder & Lee 2025",
    "Understanding Contrastive Learning through Variational Analysis and Neural Network Optimization Perspectives",
    "2503.10812",
)
GUILLOTINE = Paper(
    "Bordes et al. 2022",
    "Guillotine Regularization: Why removing layers is needed to improve generalization in Self-Supervised Learning",
    "2206.13378",
)
KORNBLITH = Paper("Kornblith et al. 2019", "Similarity of Neural Network Representations Revisited", "1905.00414")
SESN = Paper("Sosnovik et al. 2020", "Scale-Equivariant Steerable Networks", "1910.11093")
ALPHA_REQ = Paper(
    "Agrawal et al. 2022",
    "alpha-ReQ: Assessing Representation Quality in Self-Supervised Learning by measuring eigenspectrum decay "
    "(NeurIPS 2022)",
)
LIDAR = Paper(
    "Thilak et al. 2023", "LiDAR: Sensing Linear Probing Performance in Joint Embedding SSL Architectures", "2312.04000"
)
FACCO = Paper(
    "Facco et al. 2017",
    "Estimating the intrinsic dimension of datasets by a minimal neighborhood information",
    "1803.06992",
)
LEVINA = Paper("Levina & Bickel 2004", "Maximum Likelihood Estimation of Intrinsic Dimension (NeurIPS 2004)")
LIANG = Paper(
    "Liang et al. 2022",
    "Mind the Gap: Understanding the Modality Gap in Multi-modal Contrastive Representation Learning",
    "2203.02053",
)
LEJEPA = Paper(
    "Balestriero & LeCun 2025",
    "LeJEPA: Provable and Scalable Self-Supervised Learning Without the Heuristics",
    "2511.08544",
)
BYOL = Paper("Grill et al. 2020", "Bootstrap Your Own Latent: A New Approach to Self-Supervised Learning", "2006.07733")
CORTES = Paper("Cortes et al. 2012", "Algorithms for Learning Kernels Based on Centered Alignment", "1203.0550")
FORT = Paper(
    "Fort et al. 2020",
    "Deep learning versus kernel learning: an empirical study of loss landscape geometry and the time evolution "
    "of the Neural Tangent Kernel",
    "2010.15110",
)
GAO = Paper("Gao et al. 2017", "A theory of multineuronal dimensionality, dynamics and measurement (bioRxiv 214262)")
ROY_VETTERLI = Paper("Roy & Vetterli 2007", "The effective rank: A measure of effective dimensionality (EUSIPCO 2007)")
PAPYAN = Paper(
    "Papyan et al. 2020",
    "Prevalence of Neural Collapse during the terminal phase of deep learning training",
    "2008.08186",
)
DIRECTCLR = Paper(
    "Jing et al. 2022", "Understanding Dimensional Collapse in Contrastive Self-supervised Learning", "2110.09348"
)
VICREG = Paper(
    "Bardes et al. 2022",
    "VICReg: Variance-Invariance-Covariance Regularization for Self-Supervised Learning",
    "2105.04906",
)
