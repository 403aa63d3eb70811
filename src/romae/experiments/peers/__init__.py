"""Models of PyPOTS on our very arrays, masks and splits: CSDI, GP-VAE, SAITS, BRITS; GRU-D and Raindrop for classes.

    romae compare physionet-grid --with saits,brits,gp-vae --seeds 0-2 --device cuda
    romae compare physionet-grid --with csdi --precision bf16 --compile --n-validation 160 --seeds 0-2 --device cuda
    romae compare p12 --with gru-d,raindrop --seeds 1-5 --device cuda
    romae compare physionet-grid --with saits --seeds 0 --quick            seconds; numbers mean nothing

`python -m romae.experiments.peers PEER … --data physionet-grid --out FOLDER` is the same. Steps a seed: 80 a pass on
the grid, 300 on P12 and 970 on P19, at most 100 passes, fewer where 10 of them bring nothing. CSDI is validated at each
of its 50 noise levels, 1 000 forward passes a pass, and its answers are 50 more for each sample and batch of stays, so
it takes far longer than the others. It may have what our rows have, products in bfloat16 and a compiled network, and
fewer validation stays to choose its pass by; `--minutes` ends a fit, and what was best by then answers.

Settings of imputation models are those that the authors of PyPOTS found for this data set in their benchmark TSI-Bench
(Awesome_Imputation, hpo_results/physionet2012.py), those of Raindrop its authors' for P12 and P19; what these do not
name is the default of PyPOTS, and GRU-D has 64 hidden units. Each peer and seed has a file of its own, NAME-SEED.json,
with scores, seconds and memory, and is not run again where there is one.
"""
