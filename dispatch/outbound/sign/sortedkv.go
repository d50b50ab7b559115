package sign

import (
	"bytes"
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// The values of the options alg and put.in of sorted-kv.
const (
	algMD5  = "md5"
	algHMAC = "hmac-sha256"
	algRSA2 = "rsa2"

	putBody   = "body"
	putQuery  = "query"
	putHeader = "header"
)

// signTypeField is the field that names the signature's algorithm.
const signTypeField = "sign_type"

// A kvTime is the format of the time of an attempt.
type kvTime string

const (
	timeUnix     kvTime = "unix"
	timeUnixMS   kvTime = "unix_ms"
	timeDateTime kvTime = "datetime"
)

// sortedKV is the signer sorted-kv.
type sortedKV struct {
	Type string `json:"type" most:"64"`
	Alg  string `json:"alg" choice:"md5 hmac-sha256 rsa2"`
	// Exclude are fields that are not signed. The field of the signature is never signed.
	Exclude []excluded `json:"exclude" most:"50" empty:"ok"`
	// KeySuffix is the text between the fields and the key.
	KeySuffix hashOption `json:"key_suffix" most:"64" empty:"ok"`
	Case      hashOption `json:"case" choice:"upper lower"`
	SkipEmpty bool       `json:"skip_empty"`
	Put       kvPut      `json:"put"`
	// SignType is the value of the field sign_type. Empty means that it is not added.
	SignType fieldText `json:"sign_type" empty:"ok"`
	// Nonce and Time name fields that are added and signed, with new values for each attempt. Empty means
	// that they are not added.
	Nonce      fieldText `json:"nonce" empty:"ok"`
	Time       fieldText `json:"time" empty:"ok"`
	TimeFormat kvTime    `json:"time_format" choice:"unix unix_ms datetime"`
}

// A kvPut is the place of the signature.
type kvPut struct {
	In   string    `json:"in" choice:"body query header"`
	Name fieldText `json:"name"`
}

// An excluded is the name of a field. A hashOption is an option for algorithms with a shared key; rsa2 does
// not have it.
type (
	excluded   string
	hashOption string
)

// newSortedKV returns the signer with the defaults of an algorithm. rsa2 has no key suffix, and excludes
// sign_type.
func newSortedKV(alg string) *sortedKV {
	o := &sortedKV{
		Type: SortedKV, Alg: alg, Exclude: []excluded{"sign"}, KeySuffix: "&key=", Case: "upper",
		SkipEmpty: true,
		Put:       kvPut{putBody, "sign"}, TimeFormat: timeUnix,
	}
	if alg == algRSA2 {
		o.Exclude, o.KeySuffix = []excluded{"sign", signTypeField}, ""
	}
	return o
}

func newDefaultSortedKV() options { return newSortedKV(algHMAC) }

// defaults returns the defaults of the algorithm. Alg is the default algorithm, so that any other one is
// written out.
func (o *sortedKV) defaults() options {
	d := newSortedKV(o.Alg)
	d.Alg = algHMAC
	return d
}

// ReadSetting parses a name.
func (e *excluded) ReadSetting(s parse.Setting) {
	name, _ := s.Text(maxText)
	*e = excluded(name)
}

// ReadSetting parses the option and refuses it for rsa2.
func (o *hashOption) ReadSetting(s parse.Setting) {
	if s.Shared == algRSA2 {
		s.Fail("cannot be used with rsa2: it appends no key, and its signature is in base64")
		return
	}
	s.Into((*string)(o))
}

// CheckSetting checks the name of a signature in a header.
func (p *kvPut) CheckSetting(s parse.Setting) {
	if p.In == putHeader && p.Name != "" && headerName(p.Name).problem() != "" {
		s.In("name").Fail("is not a header that can be set")
	}
}

// CheckSetting checks that the added fields have different names.
func (o *sortedKV) CheckSetting(s parse.Setting) {
	if o.SignType != "" && o.Put.In == putHeader {
		s.In("sign_type").Fail("can only be used if put.in is body or query")
	}
	if o.SignType != "" && o.Put.Name == signTypeField {
		s.In("put").In("name").Fail("is the field of sign_type")
	}
	for _, f := range [...]struct {
		at   string
		name fieldText
	}{{"nonce", o.Nonce}, {"time", o.Time}} {
		switch f.name {
		case "":
		case o.Put.Name:
			s.In(f.at).Fail("is the field of the signature")
		case signTypeField:
			s.In(f.at).Fail("is the field of sign_type")
		}
	}
	if o.Nonce != "" && o.Nonce == o.Time {
		s.In("time").Fail("is the field of nonce")
	}
	if !s.Failed() && o.Time == "" && o.TimeFormat != timeUnix {
		s.In("time_format").Fail("can only be used with time")
	}
}

func (o *sortedKV) use() string {
	if o.Alg == algRSA2 {
		return UseRSA
	}
	return UseText
}

// sign signs the request's fields and the added ones with the newest secret. It fails if a field to add
// already exists.
func (o *sortedKV) sign(c *Cache, r *Request) (Signature, error) {
	source, err := kvSource(r.ContentType, r.Body, r.URL.RawQuery)
	if err != nil {
		return Signature{}, err
	}
	if o.Put.In == putBody && len(r.Body) == 0 {
		return Signature{}, errors.New("the request has no body to put the signature into")
	}
	fresh := o.attemptFields(r.At) // signed with the request's fields, which must not have them
	for _, f := range fresh {
		if source.has(f.name) {
			return Signature{}, fmt.Errorf("the request already has the field %s that the signer adds",
				f.name)
		}
	}
	var added []kvField // next to the signature
	if o.SignType != "" {
		added = append(added, kvField{signTypeField, string(o.SignType)})
	}
	if o.Put.In != putHeader {
		target := source // the fields of the part that gets the signature
		if o.Put.In == putQuery && len(r.Body) > 0 {
			target, err = formFields(r.URL.RawQuery)
			if err != nil {
				return Signature{}, errors.New("the query is malformed, so a signature cannot be added")
			}
		}
		hasSignType := target.has(signTypeField) || source.has(signTypeField)
		if target.has(string(o.Put.Name)) || o.SignType != "" && hasSignType {
			return Signature{}, errors.New("the request already has a field of the signature")
		}
	}
	value, err := c.digestKV(o, o.canonical(slices.Concat(source.fields, fresh, added)), r.Secrets[0].Key)
	if err != nil {
		return Signature{}, err
	}
	added = append(added, kvField{string(o.Put.Name), value})
	out := Signature{KeyID: r.Secrets[0].ID, Hidden: []string{value, url.QueryEscape(value)}}
	inBody, inQuery := fresh, []kvField(nil) // fresh goes where the signed fields are
	if len(r.Body) == 0 {
		inBody, inQuery = nil, fresh
	}
	switch o.Put.In {
	case putHeader:
		out.Headers = []AddedHeader{{string(o.Put.Name), value, true}}
	case putQuery:
		inQuery = append(inQuery, added...)
	default:
		inBody = append(inBody, added...)
	}
	if len(inBody) > 0 {
		out.Body = source.appendTo(r.Body, inBody)
	}
	if len(inQuery) > 0 {
		query, _ := formFields(r.URL.RawQuery) // cannot fail: parsed above
		out.Query = string(query.appendTo([]byte(r.URL.RawQuery), inQuery))
	}
	return out, nil
}

// digestKV signs the canonical text with the algorithm of the options.
func (c *Cache) digestKV(o *sortedKV, text string, key []byte) (string, error) {
	if o.Alg == algRSA2 {
		private, err := c.rsaKey(key)
		if err != nil {
			return "", err
		}
		return signSHA256(private, text)
	}
	if err := checkText(UseText, key); err != nil {
		return "", &KeyError{"the signing secret must have 8 to 4096 printable characters without spaces"}
	}
	return o.digest(text, key), nil
}

// kvSource returns the fields to sign: those of the body, or those of the query if there is no body.
func kvSource(contentType string, body []byte, query string) (*kvFields, error) {
	if len(body) > 0 {
		return readFields(contentType, body)
	}
	f, err := formFields(query)
	if err != nil {
		return nil, errors.New("the query has no fields to sign")
	}
	return f, nil
}

// canonical returns the text that is signed: name=value of the fields, sorted by the bytes of their names and
// joined by &.
func (o *sortedKV) canonical(fields []kvField) string {
	signed := make([]kvField, 0, len(fields))
	for _, f := range fields {
		isExcluded := f.name == string(o.Put.Name) || slices.Contains(o.Exclude, excluded(f.name))
		if !isExcluded && (f.value != "" || !o.SkipEmpty) {
			signed = append(signed, f)
		}
	}
	slices.SortFunc(signed, func(a, b kvField) int { return strings.Compare(a.name, b.name) })
	var b strings.Builder
	for i, f := range signed {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(f.name + "=" + f.value)
	}
	return b.String()
}

// digest returns the signature of the canonical text with a shared key.
func (o *sortedKV) digest(text string, key []byte) string {
	input := []byte(text)
	if o.KeySuffix != "" || o.Alg == algMD5 {
		input = append(append(input, o.KeySuffix...), key...)
	}
	var sum []byte
	if o.Alg == algMD5 {
		s := md5.Sum(input) // required by many existing receivers
		sum = s[:]
	} else {
		sum = keyBytes.sum(key, input)
	}
	digits := hex.AppendEncode(nil, sum)
	if o.Case != "lower" {
		digits = bytes.ToUpper(digits)
	}
	return string(digits)
}

// verify verifies the signature at the place that the options name.
func (o *sortedKV) verify(in *receivedRequest) error {
	source, err := kvSource(in.header.Get("Content-Type"), in.body, in.url.RawQuery)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSignature, err)
	}
	fields, name := source.fields, string(o.Put.Name)
	var signature string
	switch o.Put.In {
	case putHeader:
		signature = in.header.Get(name)
	case putQuery:
		query, err := formFields(in.url.RawQuery)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrSignature, err)
		}
		signature = query.value(name)
		if o.SignType != "" && len(in.body) > 0 {
			fields = append(fields, kvField{signTypeField, query.value(signTypeField)})
		}
	default:
		signature = source.value(name)
	}
	if signature == "" {
		return fmt.Errorf("%w: no %s in the %s", ErrHeaders, name, o.Put.In)
	}
	text := o.canonical(fields)
	if o.Alg == algRSA2 {
		return in.verifyRSA(text, signature)
	}
	return in.verifyAny(func(key []byte) (bool, error) {
		return matches(signature, o.digest(text, key)), nil
	})
}

// chinaTime is UTC+8 all year round. Platforms that take a datetime expect it.
var chinaTime = time.FixedZone("UTC+8", 8*60*60)

// attemptFields returns the fields whose values are new for each attempt. Their values need no escapes in
// JSON and XML.
func (o *sortedKV) attemptFields(now time.Time) []kvField {
	var fields []kvField
	if o.Nonce != "" {
		fields = append(fields, kvField{string(o.Nonce), newNonce()})
	}
	if o.Time != "" {
		fields = append(fields, kvField{string(o.Time), o.TimeFormat.text(now)})
	}
	return fields
}

func (f kvTime) text(at time.Time) string {
	switch f {
	case timeUnixMS:
		return strconv.FormatInt(at.UnixMilli(), 10)
	case timeDateTime:
		return at.In(chinaTime).Format(time.DateTime)
	}
	return strconv.FormatInt(at.Unix(), 10)
}

const (
	nonceLetters = "abcdefghijklmnopqrstuvwxyz0123456789"
	nonceLen     = 32 // the maximum of WeChat Pay
)

// newNonce returns random lower-case letters and digits, all equally likely.
func newNonce() string {
	const fair = 256 - 256%len(nonceLetters) // larger bytes would make the first letters more likely
	var raw [2 * nonceLen]byte
	nonce := make([]byte, 0, nonceLen)
	for {
		_, _ = rand.Read(raw[:]) // it never fails
		for _, b := range raw {
			if int(b) >= fair {
				continue
			}
			nonce = append(nonce, nonceLetters[int(b)%len(nonceLetters)])
			if len(nonce) == nonceLen {
				return string(nonce)
			}
		}
	}
}
