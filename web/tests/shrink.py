"""Makes pictures small: `python3 shrink.py FILE…` (needs Pillow). 256 colours are enough for a page of text."""
import sys

from PIL import Image

for path in sys.argv[1:]:
    Image.open(path).convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)
