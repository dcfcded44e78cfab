"""The glossary of a report: name, source, formula and meaning of its terms."""

from churn_compare.documents import Term

_TEXT = """
Churn :: [reproducibility] Eq. 3 :: P[ŷ(x; w₁) ≠ ŷ(x; w₂)] ::
Share of test examples that two independently trained models predict differently.

SChurn :: [reproducibility] Eq. 4, α = 1 ::
½ E‖(f(x; w₁) / max f(x; w₁))^α − (f(x; w₂) / max f(x; w₂))^α‖₁ ::
A soft churn that also sees changes of probability; it tends to churn as α grows. It is
not a share: at α = 1 it lies between 0 and half the number of classes, and is large
where probabilities are nearly uniform.

Churn correct, churn incorrect :: [reproducibility] Table 2 ::
churn = accuracy · correct + (1 − accuracy) · incorrect ::
Churn on the examples one model gets right, and on those it gets wrong.

Ambiguity :: [reproducibility] Eq. 3, per example :: 1 − Σ_c v_c (v_c − 1) / (R (R − 1))
:: Share of pairs of runs that predict one example differently, with v_c of R runs
voting for class c; its mean over examples is the churn.

Prediction confidence :: [reproducibility] Eq. 5 ::
γ = f(x; w)_ŷ − max_{j ≠ ŷ} f(x; w)_j ::
Probability of the predicted class minus that of the runner-up.

L1 :: [reproducibility] Lemma 2 :: E ‖f(x; w₁) − f(x; w₂)‖₁ ::
Distance of two models' probabilities, between 0 and 2.

Prediction difference Δ₁, Δ₂ :: [anti-distillation] Eq. 1 ::
Δₚ = 1/N Σₙ 1/M Σₘ (Σ_ℓ |Pₙₘ(ℓ) − P̄ₙ(ℓ)|ᵖ)^(1/p) ::
Distance of each of M runs' probabilities from the mean of all runs.

Relative Δʳ, label Δᴸ :: [anti-distillation] Sec. 3 ::
1/N Σₙ 1/M Σₘ Σ_ℓ |Pₙₘ(ℓ) − P̄ₙ(ℓ)| / P̄ₙ(ℓ) ::
Δ₁ relative to the mean probability: over all classes, and of the observed label alone.

Hamming Δᴴ :: [anti-distillation] Sec. 3 :: 2 / (M (M − 1)) Σ_{m < k} P[ŷₘ ≠ ŷₖ] ::
Share of labels that two runs predict differently: the mean pairwise churn.

NFR :: [elodi] Eq. 11 :: 1/N Σᵢ 1(ŷ_new ≠ ℓᵢ, ŷ_old = ℓᵢ) ::
Negative flips: right in one run and wrong in another, averaged over both orders of
every pair.

ER, NFR, PFR of an update :: [elodi] Eqs. 10, 11 ::
ER = P[ŷ ≠ ℓ], NFR = P[ŷ_new ≠ ℓ, ŷ_old = ℓ], PFR = P[ŷ_new = ℓ, ŷ_old ≠ ℓ] ::
What an old model got right and its replacement gets wrong, and the reverse; ER falls
by PFR − NFR.

Relative NFR :: [elodi] Eq. 12 :: NFR / ((1 − ER_old) · ER_new) ::
Negative flips over those of two models whose errors are independent: 100 % if they
are, 0 if the new model breaks nothing.

± of an update :: ::
se² = V_old + V_new − V_pair, V_old = Σᵢ (m̄ᵢ − m̄)² / (R₁ (R₁ − 1)) ::
Over all pairs of R₁ old and R₂ new runs, one run of either side left out at a time;
V_pair is what single pairs put into both. Own pairs (run r trained against old run r)
share no run: standard deviation / √R.

ECE :: 15 equal-width bins :: Σ_b n_b/N · |accuracy(b) − confidence(b)| ::
Expected calibration error: how far the top probability is from the accuracy.

NLL, Brier :: :: −log f(x)_y, Σ_j (f(x)_j − 1(j = y))² ::
Proper scores of the probabilities; NLL in nats.

Calibrated NLL, Brier, ECE :: [diversity] Section 5 ::
those of z / T, T = argmin_T NLL(z_val / T) ::
At the temperature that suits the run's own validation predictions best: how sure a
method sounds no longer counts.

DEE :: [diversity] Eq. 20 :: min {m ≥ 1 : NLL_DE(m) ≤ NLL} ::
Deep-ensemble equivalent: how many independent networks reach the same calibrated NLL,
with straight lines between whole numbers.

KL of members, churn of members :: [diversity] Figure 3 ::
1/(M (M − 1)) Σ_{i ≠ j} E KL(fᵢ(x) ‖ fⱼ(x)), P[ŷᵢ ≠ ŷⱼ] ::
How much the members of one run differ from each other.

± and p :: :: se² = (R − 1)/R · Σᵣ (θ₋ᵣ − mean θ₋ᵣ)² ::
Pairs share runs, so standard errors leave one run out at a time. Differences are
paired: run r of every method shares its seeds. p is two-sided (Student's t, R − 1
degrees of freedom) and Holm-adjusted over the methods; below 0.05 counts as an effect.
"""


def _term(entry: str) -> Term:
    name, source, formula, meaning = (" ".join(x.split()) for x in entry.split("::"))
    return Term(name, meaning, formula, source)


GLOSSARY = tuple(map(_term, _TEXT.strip().split("\n\n")))
