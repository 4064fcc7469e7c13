/* SPDX-License-Identifier: Apache-2.0 */
/* Looks into a set without unpacking it.
 */
#include "topo_bits.h"

#include <stddef.h>
#include <string.h>

static uint32_t digit_of(char c)
{
    return c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
           : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
           : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                  : 0;
}

/* Reads the word that ends at `end`, and returns where it begins. */
static const char *word_read(const char *text, const char *end, uint32_t *word)
{
    const char *at = end;
    *word = 0;
    for (uint32_t digit = 0; at > text && at[-1] != ','; digit++) {
        at--;
        if (*at == 'x' && at > text && at[-1] == '0') {
            return at - 1;
        }
        *word |= digit < 8 ? digit_of(*at) << (4 * digit) : 0;
    }
    return at;
}

void topo_bits_read(const char *text, topo_bits *bits)
{
    const char *end = text + strlen(text);
    bool endless = strncmp(text, "0xf...f", 7) == 0;
    memset(bits, 0, sizeof(*bits));
    for (uint32_t i = 0; i < TOPO_BITS / 32; i++) {
        bool there = end > text && !(endless && memchr(text, ',', (size_t)(end - text)) == NULL);
        if (there) {
            end = word_read(text, end, &bits->words[i]);
            end -= end > text; /* the comma */
        } else {
            bits->words[i] = endless ? UINT32_MAX : 0;
        }
    }
}

bool topo_bits_none(const char *text)
{
    for (; *text != '\0'; text++) {
        if (text[0] == '0' && text[1] == 'x') {
            text++;
        } else if (digit_of(*text) != 0) {
            return false;
        }
    }
    return true;
}
