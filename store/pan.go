package store

// A PanGuard is the treatment of card numbers (PANs) in payloads and responses.
type PanGuard string

// The values of a PanGuard. The empty value means PanOff.
const (
	PanOff PanGuard = "off"
	// PanMask masks the middle of card numbers for display. Stored and sent data is unchanged.
	PanMask PanGuard = "mask"
	// PanReject refuses payloads with card numbers, and masks like PanMask. Responses may still have some.
	PanReject PanGuard = "reject"
)

// Masks reports whether card numbers are masked for display.
func (g PanGuard) Masks() bool { return g == PanMask || g == PanReject }

// A card number has 13 to 19 digits, a prefix and a length of a known issuer (issued), and a valid Luhn
// digit. Its digits stand together, or in groups as on cards with one space or one dash between two groups:
// groups of four, 4-6-5 or 4-6-4. Digits next to a Latin letter, and runs of more than 19 digits, are no card
// number. Digits, spaces and dashes may be escaped as in JSON (\u0034) or in forms and URLs (%34, %20, +).

const (
	minPAN, maxPAN = 13, 19
	// visibleFirst and visibleLast are the numbers of digits that are not masked.
	visibleFirst, visibleLast = 6, 4
)

// A panDigit is a digit and its place text[from:to], which may be an escape.
type panDigit struct {
	value    byte
	from, to int
}

// A panPiece is a run of digits. joined is panSpace or panDash if one of these separates it from the piece
// before. Zero: it does not continue the piece before.
type panPiece struct {
	digits []panDigit
	joined byte
}

// The kinds of characters.
const (
	panOther byte = iota
	panLetter
	panNumber
	panSpace
	panDash
)

// panNext reads the character or escape at i. It returns its kind, its value if it is a digit, and its width
// in bytes.
func panNext(text []byte, i int) (kind, digit byte, width int) {
	c, width := text[i], 1
	switch {
	case c == '\\' && i+5 < len(text) && text[i+1] == 'u':
		high, low := unhex(text[i+4]), unhex(text[i+5])
		if text[i+2] != '0' || text[i+3] != '0' || high > 15 || low > 15 {
			return panOther, 0, 6
		}
		c, width = high<<4|low, 6
	case c == '\\' && i+1 < len(text):
		return panOther, 0, 2
	case c == '%' && i+2 < len(text) && unhex(text[i+1]) < 16 && unhex(text[i+2]) < 16:
		c, width = unhex(text[i+1])<<4|unhex(text[i+2]), 3
	case c == '+':
		return panSpace, 0, 1
	}
	switch {
	case c >= '0' && c <= '9':
		return panNumber, c - '0', width
	case c == ' ':
		return panSpace, 0, width
	case c == '-':
		return panDash, 0, width
	case c|0x20 >= 'a' && c|0x20 <= 'z', c == '_':
		return panLetter, 0, width
	}
	return panOther, 0, width
}

// unhex returns the value of a hexadecimal digit, or 255 for another character.
func unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 255
}

// HasPAN reports whether the text has a card number.
func HasPAN(text []byte) bool {
	found := false
	eachPAN(text, func([]panDigit) bool { found = true; return false })
	return found
}

// MaskPAN returns the text with stars for the middle digits of each card number, and whether it has one.
// Without a card number it returns the same slice. The result has no card number and is not longer.
func MaskPAN(text []byte) (redacted []byte, masked bool) {
	for {
		var hidden []panDigit
		eachPAN(text, func(digits []panDigit) bool {
			hidden = append(hidden, digits[visibleFirst:len(digits)-visibleLast]...)
			return true
		})
		if len(hidden) == 0 {
			return text, masked
		}
		out, at := make([]byte, 0, len(text)), 0
		for _, d := range hidden {
			out = append(append(out, text[at:d.from]...), '*')
			at = d.to
		}
		// The last digits of a masked number may form another number with the digits after them. So search
		// again until nothing is found.
		text, masked = append(out, text[at:]...), true
	}
}

// MaskPANText is MaskPAN for a string.
func MaskPANText(text string) string {
	if redacted, masked := MaskPAN([]byte(text)); masked {
		return string(redacted)
	}
	return text
}

// MaskAttempts masks card numbers in the responses of the attempts, in place. Headers and rules that other
// attempts may share are copied first.
func MaskAttempts(attempts []Attempt) {
	for i := range attempts {
		a := &attempts[i]
		a.Error, a.ResponseBody = MaskPANText(a.Error), MaskPANText(a.ResponseBody)
		headers := append([]Header(nil), a.ResponseHeaders...)
		for n := range headers {
			headers[n].Value = MaskPANText(headers[n].Value)
		}
		a.ResponseHeaders = headers
		if a.Rule != nil {
			rule := *a.Rule
			rule.Saw = MaskPANText(rule.Saw)
			a.Rule = &rule
		}
	}
}

// eachPAN calls each for every card number from left to right, until it returns false. The numbers share no
// digits.
func eachPAN(text []byte, each func(digits []panDigit) bool) {
	var pieces []panPiece
	var digits []panDigit
	before, joined := panOther, byte(0)
	flush := func() bool {
		more := matchPieces(pieces, each)
		pieces = pieces[:0]
		return more
	}
	for i := 0; i <= len(text); {
		kind, value, width := panOther, byte(0), 1
		if i < len(text) {
			kind, value, width = panNext(text, i)
		}
		if kind == panNumber {
			if len(digits) <= maxPAN { // more than maxPAN digits are no card number, so the rest is not kept
				digits = append(digits, panDigit{value, i, i + width})
			}
			i += width
			continue
		}
		if len(digits) > 0 {
			if joined == 0 && !flush() {
				return
			}
			if before != panLetter && kind != panLetter && len(digits) <= maxPAN {
				pieces = append(pieces, panPiece{digits, joined})
			} else if !flush() {
				return
			}
			digits, joined = nil, 0
			if kind == panSpace || kind == panDash {
				joined = kind
			}
		} else {
			joined = 0
		}
		before = kind
		i += width
	}
	flush()
}

// matchPieces finds the card numbers in pieces that follow each other. It returns false if each did.
func matchPieces(pieces []panPiece, each func(digits []panDigit) bool) (more bool) {
	var all []panDigit
	for i := 0; i < len(pieces); i++ {
		all = all[:0]
		for j := i; j < len(pieces) && len(all) < maxPAN; j++ {
			if j > i && (pieces[j].joined == 0 || j > i+1 && pieces[j].joined != pieces[i+1].joined) {
				break
			}
			if j > i && len(pieces[i].digits) != 4 {
				break // the first piece of a number in pieces has four digits
			}
			all = append(all, pieces[j].digits...)
			if isPAN(all) && grouped(pieces[i:j+1]) {
				if !each(all) {
					return false
				}
				i = j
				break
			}
		}
	}
	return true
}

// grouped reports whether the digits are grouped as on cards: one piece, 4-6-n, or pieces of four with a
// shorter last one.
func grouped(pieces []panPiece) bool {
	if len(pieces) == 1 {
		return true
	}
	if len(pieces) == 3 && len(pieces[0].digits) == 4 && len(pieces[1].digits) == 6 {
		return true
	}
	for _, p := range pieces[:len(pieces)-1] {
		if len(p.digits) != 4 {
			return false
		}
	}
	return len(pieces[len(pieces)-1].digits) <= 4
}

// isPAN reports whether digits are a card number, by their count, prefix and Luhn digit.
func isPAN(digits []panDigit) bool {
	if n := len(digits); n < minPAN || n > maxPAN || !issued(digits) {
		return false
	}
	sum := 0
	for i := range digits {
		d := int(digits[len(digits)-1-i].value)
		if i%2 == 1 {
			d *= 2
			if d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}

// issued reports whether an issuer uses this prefix and length. At least four digits are given.
func issued(digits []panDigit) bool {
	prefix := 0
	for _, d := range digits[:4] {
		prefix = prefix*10 + int(d.value)
	}
	two, n := prefix/100, len(digits)
	switch {
	case two/10 == 4: // Visa
		return n == 13 || n == 16 || n == 19
	case two >= 51 && two <= 55, prefix >= 2221 && prefix <= 2720: // Mastercard
		return n == 16
	case two == 34, two == 37: // American Express
		return n == 15
	case two == 36, two == 38, two == 39, prefix >= 3000 && prefix <= 3059: // Diners Club
		return n >= 14
	case prefix >= 3528 && prefix <= 3589, // JCB
		two == 60, two == 64, two == 65, // Discover, RuPay
		two == 62, two == 81, // UnionPay
		prefix >= 2200 && prefix <= 2204,                        // Mir
		two == 50, two >= 56 && two <= 58, two == 63, two == 67: // Maestro
		return n >= 16
	}
	return false
}
