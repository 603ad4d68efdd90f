"""Every experiment and figure of the package's sources, repeated with its public interface.

Each script prints its table and writes NAME.csv; where the source has a figure, it draws NAME.svg. `docs/sources.md`
compares the results with those of the source. Statements other than those that the page names with their script:

random_draws : thesis (5) to (8), (15) to (20), (24), (27), (37) to (39), (41) to (48), 3.1, 3.2.1, 3.3.6, Theorems 1
    and 7, (71), (72); Spanish notes (3.5) to (3.12); French lecture IV; proseminar 3.2.2, (3), (4); Chinese summary:
    scores, centring
side_claims : thesis (11) to (14), (26), (28), (29), (40), (46), (49), (50), (57), (58), (63) to (66), Theorem 5,
    d > n, 3.4.3, 3.5.3, Fig. 9
error_bounds : thesis (30) to (36), (54), (55), (73), (74), Definition 5, Theorems 2 and 4
example1, large_sizes : thesis 3.5.2, 3.6.2, 4.1, 4.2, (59) to (62)
low_rank_image : Eckart and Young; Chinese summary: best approximation of variance
tests of kernels and features : thesis (9), Definitions 3 and 4, (51) to (53), (56), Theorem 3; French lecture II
none : thesis 1.3.3 to 1.3.5, (21) to (23), (67) and 3.6.1 are definitions or textbook; 2.5.1's objective and 3.6.3 are
    quoted without numbers. Robust PCA (Spanish notes), most mutual information (Chinese summary) and density estimation
    (proseminar) are only named
"""
