"""
Maps of the sea
===============

Forty years of anomalies of the sea surface temperature. They are synthetic: a formula
with noise, in which warm events are centred further east than cold ones, as in El Niño
and La Niña. Rows are months and columns are places in the sea, each weighted by the
square root of the cosine of its latitude, so that equal areas count alike. Scores are
time series, and pre-images are maps again. Errors are root mean squares over all months
and places, against the field without noise. Both methods have two components.
"""

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from sklearn.decomposition import PCA

from bigkpca import KernelPCA

rng = np.random.default_rng(0)
months = np.arange("1980-01", "2020-01", dtype="M8[M]").astype("M8[ns]")
lat = xr.DataArray(np.arange(-28, 29, 4.0), coords=[("lat", np.arange(-28, 29, 4.0))])
lon = xr.DataArray(np.arange(120, 286, 5.0), coords=[("lon", np.arange(120, 286, 5.0))])
angle, state = 2 * np.pi / 44, np.zeros((len(months), 2))  # a period of 44 months
turn = 0.97 * np.array(
    [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
)
for month in range(1, len(months)):
    state[month] = turn @ state[month - 1] + rng.normal(0, 0.3, 2)
index = xr.DataArray(state[:, 0] / state[:, 0].std(), coords=[("time", months)])

centre = 215 + 17 * index  # in degrees east: warm events are further east
clean = index * np.exp(-((lat / 9) ** 2) - ((lon - centre) / 28) ** 2)
land = ((lon < 148) & (lat < -10)) | (lon > 272 + 0.2 * np.abs(lat + 4))
field = (clean + rng.normal(0, 0.25, clean.shape)).where(~land)

rows = field.stack(cell=["lat", "lon"]).dropna("cell")
weights = np.sqrt(np.cos(np.deg2rad(rows["lat"])))
kpca = KernelPCA(2, column_weights=weights, random_state=0).fit(rows)
weighted = rows * weights
pca = PCA(2).fit(weighted)
scores = kpca.transform(rows)  # (time, component)
restored = {
    "field": field,
    "PCA": rows.copy(data=pca.inverse_transform(pca.transform(weighted))) / weights,
    "kernel PCA": rows.copy(data=kpca.inverse_transform(scores).data),
}
for name in ("PCA", "kernel PCA"):
    restored[name] = restored[name].unstack("cell").reindex_like(field)  # NaN on land

fig, axes = plt.subplot_mosaic(
    "sss;012;345", figsize=(5, 4.2), height_ratios=[1.5, 1, 1]
)
series = np.sign(np.corrcoef(scores[:, 0], index)[0, 1]) * scores[:, 0]
axes["s"].plot(months, index, color="0.7", label="index")
axes["s"].plot(months, series / series.std(), lw=1, label="score 1")
axes["s"].set(ylabel="standardised", ylim=(-3.4, 5))
axes["s"].set_xticks(months[::120], months[::120].astype("M8[Y]"))
axes["s"].legend(ncols=2, frameon=False, fontsize=10, loc="upper left")
for line, month in enumerate([index.values.argmax(), index.values.argmin()]):
    for column, (name, maps) in enumerate(restored.items()):
        ax = axes[str(3 * line + column)]
        ax.set_facecolor("0.75")  # land
        shown = maps.isel(time=month).transpose("lat", "lon")
        drawn = ax.pcolormesh(
            maps["lon"], maps["lat"], shown, vmin=-2.5, vmax=2.5, cmap="RdBu_r"
        )
        ax.set(xticks=[], yticks=[])
        if line == 0:
            error = np.sqrt(((maps - clean) ** 2).mean())
            ax.set_title(f"{name}\nerror {error:.2f} °C", fontsize=10)
        if column == 0:
            ax.set_ylabel(str(months[month])[:7], fontsize=10)
fig.colorbar(drawn, ax=[axes[key] for key in "25"], label="°C")

# %%
# The meaning of the first component: pre-images along its axis, from two standard
# deviations below the mean to two above. The event moves east as it grows.

steps = [-2, -1, 0, 1, 2]
points = np.outer(steps, scores.std("time") * [1, 0])
along = rows[:5].copy(data=kpca.inverse_transform(points)).unstack("cell")
along = along.reindex_like(field[:5]).assign_coords(time=steps)
along.rename(time="deviations").plot(
    col="deviations", figsize=(7, 1.8), cbar_kwargs={"label": "°C"}
)
