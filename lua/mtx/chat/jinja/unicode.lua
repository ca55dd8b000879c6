-- SPDX-License-Identifier: MIT
-- Letter case, letters, digits and printability beyond ASCII, as Python's str sees them.
--
-- Source: the Unicode Character Database 14.0.0 (UnicodeData.txt, SpecialCasing.txt without
-- conditions). Numbers are base 36. A case row is "gap length step shift": a run that begins
-- gap after the begin of the last, spans length, takes every step-th code point and
-- adds shift. A range row is "gap length", gap counted from the end of the last range.
local UPPER = [[
51 0 1 kn 17 m 1 -w o 6 1 -w 7 0 1 3d 2 1a 2 -1 1c 0 1 -6g 2 4 2 -1 7 e 2 -1 h 18 2 -1 1b 4 2 -1 5 0 1 -8c 1 0 1 5f 3 2 2 -1 5 0 1 -1
4 0 1 -1 6 0 1 -1 3 0 1 2p 4 0 1 -1 1 0 1 4j 4 0 1 3m 3 4 2 -1 7 0 1 -1 5 0 1 -1 3 0 1 -1 4 2 2 -1 5 0 1 -1 4 0 1 -1 2 0 1 1k 6 0 1 -1
1 0 1 -2 2 0 1 -1 1 0 1 -2 2 0 1 -1 1 0 1 -2 2 e 2 -1 f 0 1 -27 2 g 2 -1 j 0 1 -1 1 0 1 -2 2 0 1 -1 4 12 2 -1 16 g 2 -1 p 0 1 -1 3 1 1 8cf
3 0 1 -1 5 8 2 -1 9 0 1 8bj 1 0 1 8bg 1 0 1 8bi 1 0 1 -5u 1 0 1 -5q 2 1 1 -5p 3 0 1 -5m 2 0 1 -5n 1 0 1 wnj 4 0 1 -5p 1 0 1 wnf 2 0 1 -5r
2 0 1 wmg 1 0 1 wn8 2 0 1 -5t 1 0 1 -5v 1 0 1 wn8 1 0 1 8af 1 0 1 wn5 3 0 1 -5v 2 0 1 8al 1 0 1 -5x 3 0 1 -5y 8 0 1 89z 3 0 1 -62 2 0 1 wn7
1 0 1 -62 4 0 1 wmi 1 0 1 -62 1 0 1 -1x 1 1 1 -61 2 0 1 -1z 6 0 1 -63 b 0 1 wlx 1 0 1 wlu 4n 0 1 2c 18 2 2 -1 6 0 1 -1 4 2 1 3m 1d 0 1 -12
1 2 1 -11 4 g 1 -w h 0 1 -v 1 8 1 -w 9 0 1 -1s 1 1 1 -1r 3 0 1 -1q 1 0 1 -1l 4 0 1 -1b 1 0 1 -1i 1 0 1 -8 2 m 2 -1 n 0 1 -2e 1 0 1 -28
1 0 1 7 1 0 1 -38 2 0 1 -2o 3 0 1 -1 3 0 1 -1 1h v 1 -w w f 1 -28 h w 2 -1 16 1g 2 -1 1j c 2 -1 d 0 1 -f 2 2m 2 -1 40 11 1 -1c 29b 16 1 2bk
19 2 1 2bk l7 5 1 -8 1oo 0 1 -4tq 1 0 1 -4tp 1 0 1 -4tg 1 1 1 -4te 2 0 1 -4tf 1 0 1 -4t8 1 0 1 -4rp 1 0 1 r7m 6p 0 1 r9g 4 0 1 2xy h 0 1 raw
37 44 2 -1 4a 0 1 -1n 6 2m 2 -1 2n 7 1 8 g 5 1 8 g 7 1 8 g 7 1 8 g 5 1 8 h 6 2 8 f 7 1 8 g 1 1 22 2 3 1 2e 4 1 1 2s 2 1 1 3k 2 1 1 34
2 1 1 3i 1g 1 1 8 e 0 1 -5k5 i 1 1 8 g 1 1 8 5 0 1 7 a1 0 1 -s y f 1 -g k 0 1 -1 ng p 1 -q 1gg 1b 1 -1c 1d 0 1 -1 4 0 1 -8bv 1 0 1 -8bs
2 4 2 -1 b 0 1 -1 3 0 1 -1 b 2q 2 -1 2z 2 2 -1 7 0 1 -1 d 11 1 -5ls 13 0 1 -5ls 6 0 1 -5ls nx0 18 2 -1 1s q 2 -1 4i c 2 -1 g 1o 2 -1
1z 2 2 -1 5 8 2 -1 d 0 1 -1 5 2 2 -1 3 0 1 1c 3 i 2 -1 u e 2 -1 j 2 2 -1 9 0 1 -1 6 2 2 -1 v 0 1 -1 nx 0 1 -ps t 27 1 -tzk gk1 p 1 -w
yv 13 1 -14 4w z 1 -14 5b a 1 -13 c e 1 -13 g 6 1 -13 8 1 1 -13 1dx 1e 1 -1s 2dc v 1 -w gww v 1 -w o8y x 1 -y]]
local LOWER = [[
5c m 1 w o 6 1 w 14 1a 2 1 1e 4 2 1 7 e 2 1 h 18 2 1 1a 0 1 -3d 1 4 2 1 8 0 1 5u 1 2 2 1 4 0 1 5q 1 0 1 1 2 1 1 5p 2 0 1 1 3 0 1 27 1 0 1 5m
1 0 1 5n 1 0 1 1 2 0 1 5p 1 0 1 5r 2 0 1 5v 1 0 1 5t 1 0 1 1 4 0 1 5v 1 0 1 5x 2 0 1 5y 1 4 2 1 6 0 1 62 1 0 1 1 2 0 1 62 3 0 1 1 2 0 1 62
1 0 1 1 2 1 1 61 2 2 2 1 4 0 1 63 1 0 1 1 4 0 1 1 8 0 1 2 1 0 1 1 2 0 1 2 1 0 1 1 2 0 1 2 1 g 2 1 j g 2 1 j 0 1 2 1 2 2 1 4 0 1 -2p
1 0 1 -1k 1 12 2 1 14 0 1 -3m 2 g 2 1 o 0 1 8bv 1 0 1 1 2 0 1 -4j 1 0 1 8bs 3 0 1 1 2 0 1 -5f 1 0 1 1x 1 0 1 1z 1 8 2 1 8a 2 2 1 6 0 1 1
9 0 1 38 7 0 1 12 2 2 1 11 4 0 1 1s 2 1 1 1r 3 g 1 w i 8 1 w 18 0 1 8 9 m 2 1 s 0 1 -1o 3 0 1 1 2 0 1 -7 1 0 1 1 3 2 1 -3m 3 f 1 28 g v 1 w
28 w 2 1 16 1g 2 1 1i 0 1 f 1 c 2 1 f 2m 2 1 2p 11 1 1c 29b 11 1 5ls 13 0 1 5ls 6 0 1 5ls k3 27 1 tzk 28 5 1 8 1pc 16 1 -2bk 19 2 1 -2bk
8z 44 2 1 4e 0 1 -5vj 2 2m 2 1 2w 7 1 -8 g 5 1 -8 g 7 1 -8 g 7 1 -8 g 5 1 -8 h 6 2 -8 f 7 1 -8 w 7 1 -8 g 7 1 -8 g 7 1 -8 g 1 1 -8 2 1 1 -22
2 0 1 -9 c 3 1 -2e 4 0 1 -9 c 1 1 -8 2 1 1 -2s e 1 1 -8 2 1 1 -34 2 0 1 -7 c 1 1 -3k 2 1 1 -3i 2 0 1 -9 8a 0 1 -5st 4 0 1 -6gv 1 0 1 -6di
7 0 1 s 1a f 1 g z 0 1 1 mr p 1 q 1fu 1b 1 1c 2o 0 1 1 2 0 1 -8af 1 0 1 -2xy 1 0 1 -89z 3 4 2 1 6 0 1 -8bg 1 0 1 -8al 1 0 1 -8bj 1 0 1 -8bi
2 0 1 1 3 0 1 1 9 1 1 -8cf 2 2q 2 1 2z 2 2 1 7 0 1 1 nym 18 2 1 1s q 2 1 4i c 2 1 g 1o 2 1 1z 2 2 1 4 0 1 -r9g 1 8 2 1 d 0 1 1 2 0 1 -wmg
3 2 2 1 6 i 2 1 k 0 1 -wn8 1 0 1 -wnj 1 0 1 -wnf 1 0 1 -wn5 1 0 1 -wn8 2 0 1 -wlu 1 0 1 -wmi 1 0 1 -wlx 1 0 1 ps 1 e 2 1 g 0 1 -1c
1 0 1 -wn7 1 0 1 -raw 1 2 2 1 9 0 1 1 6 2 2 1 v 0 1 1 h7w p 1 w yn 13 1 14 4w z 1 14 5c a 1 13 c e 1 13 g 6 1 13 8 1 1 13 1d8 1e 1 1s
2e8 v 1 w gww v 1 w o8w x 1 y]]
local UPPER_LONG = {
  [223]="\u{53}\u{53}", [329]="\u{2BC}\u{4E}", [496]="\u{4A}\u{30C}", [912]="\u{399}\u{308}\u{301}", [944]="\u{3A5}\u{308}\u{301}",
  [1415]="\u{535}\u{552}", [7830]="\u{48}\u{331}", [7831]="\u{54}\u{308}", [7832]="\u{57}\u{30A}", [7833]="\u{59}\u{30A}",
  [7834]="\u{41}\u{2BE}", [8016]="\u{3A5}\u{313}", [8018]="\u{3A5}\u{313}\u{300}", [8020]="\u{3A5}\u{313}\u{301}",
  [8022]="\u{3A5}\u{313}\u{342}", [8064]="\u{1F08}\u{399}", [8065]="\u{1F09}\u{399}", [8066]="\u{1F0A}\u{399}", [8067]="\u{1F0B}\u{399}",
  [8068]="\u{1F0C}\u{399}", [8069]="\u{1F0D}\u{399}", [8070]="\u{1F0E}\u{399}", [8071]="\u{1F0F}\u{399}", [8072]="\u{1F08}\u{399}",
  [8073]="\u{1F09}\u{399}", [8074]="\u{1F0A}\u{399}", [8075]="\u{1F0B}\u{399}", [8076]="\u{1F0C}\u{399}", [8077]="\u{1F0D}\u{399}",
  [8078]="\u{1F0E}\u{399}", [8079]="\u{1F0F}\u{399}", [8080]="\u{1F28}\u{399}", [8081]="\u{1F29}\u{399}", [8082]="\u{1F2A}\u{399}",
  [8083]="\u{1F2B}\u{399}", [8084]="\u{1F2C}\u{399}", [8085]="\u{1F2D}\u{399}", [8086]="\u{1F2E}\u{399}", [8087]="\u{1F2F}\u{399}",
  [8088]="\u{1F28}\u{399}", [8089]="\u{1F29}\u{399}", [8090]="\u{1F2A}\u{399}", [8091]="\u{1F2B}\u{399}", [8092]="\u{1F2C}\u{399}",
  [8093]="\u{1F2D}\u{399}", [8094]="\u{1F2E}\u{399}", [8095]="\u{1F2F}\u{399}", [8096]="\u{1F68}\u{399}", [8097]="\u{1F69}\u{399}",
  [8098]="\u{1F6A}\u{399}", [8099]="\u{1F6B}\u{399}", [8100]="\u{1F6C}\u{399}", [8101]="\u{1F6D}\u{399}", [8102]="\u{1F6E}\u{399}",
  [8103]="\u{1F6F}\u{399}", [8104]="\u{1F68}\u{399}", [8105]="\u{1F69}\u{399}", [8106]="\u{1F6A}\u{399}", [8107]="\u{1F6B}\u{399}",
  [8108]="\u{1F6C}\u{399}", [8109]="\u{1F6D}\u{399}", [8110]="\u{1F6E}\u{399}", [8111]="\u{1F6F}\u{399}", [8114]="\u{1FBA}\u{399}",
  [8115]="\u{391}\u{399}", [8116]="\u{386}\u{399}", [8118]="\u{391}\u{342}", [8119]="\u{391}\u{342}\u{399}", [8124]="\u{391}\u{399}",
  [8130]="\u{1FCA}\u{399}", [8131]="\u{397}\u{399}", [8132]="\u{389}\u{399}", [8134]="\u{397}\u{342}", [8135]="\u{397}\u{342}\u{399}",
  [8140]="\u{397}\u{399}", [8146]="\u{399}\u{308}\u{300}", [8147]="\u{399}\u{308}\u{301}", [8150]="\u{399}\u{342}",
  [8151]="\u{399}\u{308}\u{342}", [8162]="\u{3A5}\u{308}\u{300}", [8163]="\u{3A5}\u{308}\u{301}", [8164]="\u{3A1}\u{313}",
  [8166]="\u{3A5}\u{342}", [8167]="\u{3A5}\u{308}\u{342}", [8178]="\u{1FFA}\u{399}", [8179]="\u{3A9}\u{399}", [8180]="\u{38F}\u{399}",
  [8182]="\u{3A9}\u{342}", [8183]="\u{3A9}\u{342}\u{399}", [8188]="\u{3A9}\u{399}", [64256]="\u{46}\u{46}", [64257]="\u{46}\u{49}",
  [64258]="\u{46}\u{4C}", [64259]="\u{46}\u{46}\u{49}", [64260]="\u{46}\u{46}\u{4C}", [64261]="\u{53}\u{54}", [64262]="\u{53}\u{54}",
  [64275]="\u{544}\u{546}", [64276]="\u{544}\u{535}", [64277]="\u{544}\u{53B}", [64278]="\u{54E}\u{546}", [64279]="\u{544}\u{53D}",
}
local LOWER_LONG = {
  [304]="\u{69}\u{307}",
}
local NOT_PRINTABLE = [[
3k w d 0 jv 1 7 3 8 0 2 0 l 0 b2 0 13 1 1f 1 4 0 1k 7 s 3 7 g n 0 5d 0 1d 1 1o 1 2u d 1o 1 1e 1 g 0 t 1 2 0 c 4 w 8 23 0 4i 0 9 1 3 1 n 0
8 0 2 2 5 1 a 1 3 1 5 7 2 3 3 0 6 1 q 1 4 0 7 3 3 1 n 0 8 0 3 0 3 0 3 1 2 0 6 3 3 1 4 2 2 6 5 0 2 6 i 9 4 0 a 0 4 0 n 0 8 0 3 0 6 1 b 0 4 0
4 1 2 e 5 1 d 6 8 0 4 0 9 1 3 1 n 0 8 0 3 0 6 1 a 1 3 1 4 6 4 3 3 0 6 1 j 9 3 0 7 2 4 0 5 2 3 0 2 0 3 2 3 2 4 2 d 3 6 2 4 0 5 1 2 5 2 d m 4
e 0 4 0 o 0 h 1 a 0 4 0 5 6 3 0 4 1 2 1 5 1 b 6 n 0 4 0 o 0 b 0 6 1 a 0 4 0 5 6 3 5 3 0 5 1 b 0 3 c e 0 4 0 1g 0 4 0 7 3 h 1 r 0 4 0 j 2 p 0
a 0 2 1 8 2 2 3 7 0 2 0 9 5 b 1 4 b 1n 3 u 10 3 0 2 0 6 0 p 0 2 0 o 1 6 0 2 0 7 1 b 1 5 v 21 0 11 3 14 0 11 0 g 0 e 10 5j 0 2 4 2 1 ai 0 5 1
8 0 2 0 5 1 16 0 5 1 y 0 5 1 8 0 2 0 5 1 g 0 1m 0 5 1 1w 1 x 2 r 5 2f 1 7 1 ht 0 t 2 2i 6 n 8 p 8 l b e 0 4 0 3 b 2n 1 b 5 b 5 f 0 c 5 2i 6
18 4 1z 9 w 0 d 3 d 3 2 2 17 1 6 a 19 3 r 5 c 2 1r 1 1u 0 u 1 c 5 b 5 f 1 w 1c 26 2 1c 0 39 7 1p 2 g 2 1p 6 18 1 c 7 18 4 ev 1 7 1 13 1 7 1
9 0 2 0 2 0 2 0 w 1 1i 0 g 0 f 1 7 0 k 1 4 0 a g p 7 1c g 3 1 s 0 e 2 y e y e 3x 3 ig o c k 1ed 1 x 0 9q 4 1a 0 2 4 2 1 1l 6 3 d p 8 8 0 8 0
8 0 8 0 8 0 8 0 8 0 8 0 3j x r 0 2i b 5z p d 4 1s 0 2f 1 2w 4 18 0 2n 0 2d b 1c 0 mlq 2 1k 8 9p j 55 7 5o 4 3 0 2 0 6 n 1o 2 b 5 1l 7 1z 7
d 5 39 a v 2 27 0 c 3 y 0 1k 8 f 1 b 1 2w n t 9 7 1 7 1 7 8 8 0 8 0 1p 3 3j 1 b 5 8md b o 3 1e 3 1kx 4xr a7 1 2z 11 8 b 6 4 r 0 6 0 2 0 3 0
3 0 3i f ce 1 1j 6 2 v 17 5 1g 0 k 0 5 3 6 0 3s 3 5b 2 7 1 7 1 7 1 4 2 8 0 8 c 3 1 d 0 r 0 k 0 3 0 g 1 f x 3g 4 4 3 1a 2 2h 0 e 2 2 1a 1b 3l
u 2 1e e t 3 11 8 v 4 18 4 v 0 12 3 f 15 4f 1 b 5 11 3 11 3 15 7 1h a d 0 g 0 8 0 3 0 c 0 g 0 8 0 3 1u 8o 8 n 9 9 n 7 0 17 0 a 1w 7 1 2 0
19 0 3 2 2 1 o 0 21 7 a 1b k 0 3 4 y 2 s 4 2 1r 1l 3 l 1 1f 0 3 4 9 0 4 0 u 1 4 3 b 6 a 6 1t v 14 3 d 8 1j 2 u 1 s 4 r 6 5 b 8 27 22 1i 1g c
1g 6 1b 7 b 85 w 0 17 0 4 1 3 25 15 7 17 l r 11 t j o 8 27 3 11 8 1r 0 6 c q 6 b 5 1i 0 j 7 14 8 2p 0 l a j 0 19 1s 8 0 2 0 5 0 g 0 c 5 1o 4
b 5 5 0 9 1 3 1 n 0 8 0 3 0 6 0 b 1 3 1 4 1 2 5 2 4 8 1 8 2 6 3u 2l 0 6 t 21 7 b 4l 1j 1 13 x 1y a b 5 e i 1n 5 b 1h s 1 g 3 o 54 1p 2r 2c b
9 1 2 1 9 0 3 0 v 0 3 1 d 8 b 1x 9 1 1b 1 c q 21 7 2c c 22 7a a 0 1a 0 f 9 u 2 x 1 n 0 f 20 8 0 3 0 19 2 2 0 3 0 a 7 b 5 7 0 3 0 12 0 3 0
7 6 b 8l q 52 2 e 1f c po 2t 34 0 6 a 5h 217 2s c ts 34g g8 6ns fu 6 w 0 b 3 2a 0 b 5 v 1 7 9 1z 9 b 0 8 0 m 4 k j3 2k 2s 24 3 1m 6 i 1r 6 a
3 d 4qh 7 yf 15 a 6w6 5 0 8 0 3 0 84 18 4 g 5 7 b1 1s3 30 4 e 2 a 6 b 1 5 3mn 1b 1 o 8 39 1n 6v 9 14 1 23 7 35 k 1z 49 l b 2g 8 q 3q 2e 0
20 0 3 1 2 1 3 1 5 0 d 0 2 0 8 0 1u 0 5 1 9 0 8 0 t 0 5 0 6 0 2 2 8 0 9h 1 85 1 jj e 6 0 g un w 68 8 0 i 1 8 0 3 0 6 5w 1a 2 f 1 b 3 3 8v
w g 1n 4 2 yn 8 0 5 0 3 0 g 0 5i 1 h 14 25 3 b 3 3 ls 1x 23 1q 5d 5 0 s 0 3 0 2 1 2 0 b 0 5 0 2 0 2 5 2 3 2 0 2 0 2 0 4 0 3 0 2 1 2 0 2 0
2 0 2 0 2 0 3 0 2 1 5 0 8 0 5 0 5 0 2 0 b 0 i 4 4 0 6 0 i 1f 3 7h 19 3 2t b g 1 g 0 g 0 12 9 4v 1j u c 19 3 a 6 3 d 7 49 rd 4 h 2 e 2 39 b
2i 6 d 3 2 e d 3 1l 7 b 5 15 7 v 1 3 25 9h b f 1 6 2 6 2 8 8 u 2 c 4 7 9 b 5 9 7 8 8 44 0 1k 10 b sl wyp v 37e 6 67 1 4g3 d 5rm 2e6 f3 15t
3t8 fcms 6p 47bj]]
local LETTER = [[
4q 0 b 0 5 0 6 m 2 u 2 cp 5 b f 4 8 0 2 0 3m 4 2 1 3 3 2 0 7 0 2 2 2 0 2 j 2 2a 2 3u 9 4l 2 11 3 0 7 14 20 q 5 3 1a 16 10 1 2 2q 2 0 g 1 8 1
b 2 3 0 h 0 2 t u 2g c 0 p w a 1 5 0 6 l 5 0 a 0 4 0 o o 8 a 6 n 2 5 i 15 1n 1h 4 0 j 0 8 9 g f 5 7 3 1 3 l 2 6 2 0 4 3 4 0 h 0 e 1 2 2 f 1
b 0 9 5 5 1 3 l 2 6 2 1 2 1 2 1 w 3 2 0 k 2 h 8 2 2 2 l 2 6 2 1 2 4 4 0 j 0 g 1 o 0 c 7 3 1 3 l 2 6 2 1 2 4 4 0 v 1 2 2 g 0 i 0 2 5 4 2 2 3
4 1 2 0 2 1 4 1 4 2 4 b n 0 1h 7 2 2 2 m 2 f 4 0 r 2 3 0 3 1 v 0 5 7 2 2 2 m 2 9 2 4 4 0 w 1 2 1 g 1 i 8 2 2 2 14 3 0 h 0 6 2 9 2 p 5 6 h
4 n 2 8 2 0 3 6 1n 1b 2 1 d 6 1n 1 2 0 2 4 2 n 2 0 2 9 2 1 a 0 3 4 2 0 m 3 x 0 1s 7 2 z s 4 38 16 l 0 h 5 5 3 4 0 4 1 8 2 5 c d 0 i 11 2 0
6 0 3 16 2 98 2 3 3 6 2 0 2 3 3 14 2 3 3 w 2 3 3 6 2 0 2 3 3 e 2 1k 2 3 3 1u 12 f h 2d 3 5 4 h7 3 g 2 p 6 22 7 7 8 h e i f h f c 2 2 g 1f
10 0 5 0 1w 2g 8 4 3 x 2 0 6 1x b u 1e t 3 4 c 17 5 p 1j m a 1g 2b 0 2m 1a i 7 1j t e 1 b 17 r z 16 2 b z 3 8 8 16 3 2 16 3 2 5 2 1 4 0 6 5b
1t 7p 3 5 3 11 3 5 3 7 2 0 2 0 2 0 2 u 3 1g 2 6 2 0 4 2 2 6 4 3 3 5 5 c 6 2 2 6 39 0 e 0 h c 2u 0 5 0 3 9 2 0 4 4 7 0 2 0 2 0 2 3 2 a 3 3
6 4 5 0 1h 1 22k 6c 7 3 4 1 d 11 2 0 6 0 3 1j 8 0 h m a 6 2 6 2 6 2 6 2 6 2 6 2 6 2 6 29 0 d2 1 17 4 6 1 5 2d 7 2 2 2h 2 3 6 16 2 2l i v
1d f e9 533 1t h3g 1w 19 3 7g 4 f b 1 l 1a h u 3 1x 1e 8 3 2u 3 1r 6 1 2 0 2 4 p f 2 2 2 3 2 m u 1f f 1d 1r 5 4 0 2 1 c r b m q s 8 1a t 0
h 4 2 9 b 4 2 14 o 2 2 7 l m 4 0 4 1d 2 0 4 1 3 4 3 0 2 0 p 2 3 a 8 2 d 5 3 5 3 5 a 6 2 6 2 16 2 d 7 36 u 8mb d m 5 1c 6it a5 3 2x 13 6 d 4
6 0 2 9 2 c 2 4 2 0 2 1 2 1 2 2z y a2 j 1r 3 1h 15 b 39 4 2 3q 11 p 7 p c 2g 4 5 3 5 3 5 3 2 10 b 2 p 2 i 2 1 2 e 3 d z 3e au s 4 1c 1c v
e j 2 7 7 11 b t 3 z 5 7 1d 4d j z 5 z 5 13 9 1f d a 2 e 2 6 2 1 2 a 2 e 2 6 2 1 1w 8m a l b 7 p 5 2 15 2 8 1y 5 3 0 2 17 2 1 4 0 3 m b m
a u 1u i 2 1 b l b p 1z 1j 7 1 1t 0 g 3 2 2 2 s 17 s 4 s 10 7 2 r s 1h b l b i e h 33 20 1k 1e e 1e e z 9p 15 7 1 27 s b 0 9 l 17 h 1b k s m
d 1g 1m 1 3 0 e 18 x o r z u 0 3 0 9 y 4 0 d 1b f 3 m 0 2 0 10 h 2 o 2d 6 2 0 2 3 2 e 2 9 8 1a 13 7 3 1 3 l 2 6 2 1 2 4 4 0 j 0 d 4 4f 1g
j 3 l 2 v 1b l 1 2 0 55 1a 16 3 11 1b l 0 1o 16 e 0 20 q 12 6 56 17 39 1r w 7 3 0 3 7 2 1 2 n g 0 2 0 2n 7 3 12 h 0 2 0 t 0 b 13 8 0 m 0
c 19 k 0 j 20 7c 8 2 10 i 0 1e t 35 6 2 1 2 11 m 0 q 5 2 1 2 v f 0 94 i 5a 0 28 pl 6f 5f 219 2o g tq 34i g6 6nu fs 8 u i 26 i t j 1b h 3 w k
6 i j5 1r 3l 22 6 0 1v c 1t 1 2 0 t 4qf 9 yd 17 8 6w8 3 2 6 2 1 2 82 1a 2 i 3 9 az 1s5 2y 6 c 4 8 8 9 4mf 2c 2 1y 2 1 3 0 3 1 3 3 2 b 2 0
2 6 2 1s 2 3 3 7 2 6 2 r 2 3 2 4 2 0 4 6 2 9f 3 o 2 o 2 u 2 o 2 u 2 o 2 u 2 o 2 u 2 o 2 7 1f9 u de 18 b 6 h 0 8y t j 17 z9 6 2 3 2 1 2 e
2 5g 1o 1v 8 0 xh 3 2 q 2 1 2 0 3 0 2 9 2 3 2 0 2 0 7 0 5 0 2 0 2 0 2 2 2 1 2 0 3 0 2 0 2 0 2 0 2 0 2 1 2 0 3 3 2 6 2 3 2 3 2 0 2 9 2 g 6 2
2 4 2 g 3et wyn x 37c 8 65 3 4g1 f 5rk 2e8 f1 15v 3t6]]
local DECIMAL = [[
19c 9 3r 9 5j 9 bh 9 3b 9 3b 9 3b 9 3b 9 3b 9 3b 9 3b 9 3b 9 3b 9 2p 9 3b 9 1z 9 7r 9 1z 9 1fr 9 13 9 8d 9 3l 9 4n 9 7 9 53 9 2f 9 3r 9 7 9
r7r 9 iv 9 13 9 5j 9 n 9 2f 9 bb 9 gev 9 13b 9 1on 9 ml 9 3l 9 1p 9 41 9 7r 9 9j 9 3b 9 af 9 2v 9 2v 9 br 9 2v 9 l3 9 6v 9 1z 9 f5j 9 2f 9
3r 9 lf9 1d 1tt 9 br 9 193 9 3o7 9]]
local NUMERIC = [[
4y 1 6 0 3 2 1ti 5 ah 5 3d 2 3q 6 62 6 i 8 c2 9 ty j oi 2 74 9 dd 0 1au 0 4 5 7 9 5j 1e 3 4 k7 1n 27 l hj t 12i 0 lm 0 q 8 f 2 9k 3 3v 9 v 7
2 e x 9 14 e 92 0 3i 0 pz 0 mb 0 3oz 0 3 0 4 0 2 0 2c 0 1b 0 8 0 2 0 15 1 v 0 9 0 11 0 2r 0 b8 0 1u 0 z 0 2 0 2 0 d0 0 2 2 7 0 39 3 lz 0
eu 0 8 0 135 0 3o 1 d 2 2 0 ry 0 26 0 w6 0 1f8 0 wg 0 ko 0 1zc 0 py 0 1oi 0 5 0 3h 0 1rl 0 11 0 6 0 18 0 3i 0 35c 9 8x 5 g1i 0 8 0 5 0 1m 0
v 0 2 0 16 0 1e2 18 d 1k i 1 9i q 11 3 u 0 9 0 3r 4 w3 7 q 6 14 8 24 4 n 5 4h 1 3 f 3 19 1t 8 1h 1 v 2 24 4 2x 7 p 7 16 6 97 5 9t u 4f 9
17 3 35 6 3r j ak j 11i 1 bz 8 o8 i no k to 32 e0d 6 m7 m jt6 j 31 o 47j 8 pu 1m 2 2 2 3 25 18 2 e qr c 2yd 0 2r 0 3i 0 1r 0 1l5 0 2h 0 9 0
g 0 9a 0 j 0 s 0 4tz 0 16w 0 3gj 0 7rm 0 tnn 0]]
local DIGIT = [[
4y 1 6 0 3ow 8 19l 0 1au 0 4 5 7 9 rb 8 c 8 c 8 2i 0 b 8 2 0 hj 8 2 8 2 8 18ry 3 t9 8 dm 8 18di a]]

local unicode = {}

-- A table from UTF-8 characters to UTF-8 text, filled on demand by gsub's look-ups.
local function case_map(rows, long)
  local map, first = {}, 0
  for gap, length, step, shift in rows:gmatch("(%w+) (%w+) (%w+) (%-?%w+)") do
    first = first + tonumber(gap, 36)
    for code = first, first + tonumber(length, 36), tonumber(step) do map[utf8.char(code)] = utf8.char(code + tonumber(shift, 36)) end
  end
  for code, s in pairs(long) do map[utf8.char(code)] = s end
  return map
end

local function range_test(rows)
  local starts, stops, last = {}, {}, 0
  for gap, length in rows:gmatch("(%w+) (%w+)") do
    local first = last + tonumber(gap, 36)
    last = first + tonumber(length, 36)
    starts[#starts + 1], stops[#stops + 1] = first, last
  end
  return function(code)
    local low, high = 1, #starts
    while low <= high do
      local mid = (low + high) // 2
      if code < starts[mid] then high = mid - 1 elseif code > stops[mid] then low = mid + 1 else return true end
    end
    return false
  end
end

unicode.upper = case_map(UPPER, UPPER_LONG)
unicode.lower = case_map(LOWER, LOWER_LONG)

local not_printable = range_test(NOT_PRINTABLE)
--- For code points beyond ASCII.
function unicode.is_printable(code) return not not_printable(code) end
unicode.is_letter = range_test(LETTER)
unicode.is_decimal = range_test(DECIMAL)
unicode.is_digit = range_test(DIGIT) -- without the decimal ones, as is_numeric
unicode.is_numeric = range_test(NUMERIC)

return unicode
