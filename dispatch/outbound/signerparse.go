package outbound

import (
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	defaultBodyHeader        = "X-Signature-256"
	defaultTimestampedHeader = "X-Signature"
	defaultPrefix            = "sha256="
	// previousSuffix makes the header of the former secret's signature out of that of the present one's.
	previousSuffix = "-Previous"
	// maxSignerText is how long an option's text may be, in characters.
	maxSignerText = 64
	// maxMchid is how long a merchant's number may be.
	maxMchid = 32
	// maxExcluded is how many fields sorted-kv may leave out.
	maxExcluded = 50
)

// ParseSigner reads a signer: a JSON string, its name, or an object {"type": …} with its options (SignerInfos tells them). It returns the text
// that Request.Signer takes: the bare name where no option differs from its default, else compact JSON with its members in a fixed
// order. What is wrong is named relative to the signer, as "put.name"; the field "" is the signer itself.
func ParseSigner(raw []byte) (string, []store.FieldError) {
	s, wrong := compileSigner(raw)
	if len(wrong) > 0 {
		return "", wrong
	}
	return s.text(), nil
}

func compileSigner(raw []byte) (*signer, []store.FieldError) {
	r := newJSONReader(raw)
	if len(r.wrong) > 0 {
		return nil, r.wrong
	}
	var s *signer
	switch r.kind(0) {
	case jsonString:
		if s = defaultSigner(r.str(0)); s == nil {
			r.fail("", "is one of %s", strings.Join(Signers(), ", "))
		}
	case jsonObject:
		s = r.signer()
	default:
		r.fail("", `is a name or an object with a "type"`)
	}
	return s, r.wrong
}

// defaultSigner returns a signer with nothing but defaults; nil: there is none of that name.
func defaultSigner(name string) *signer {
	s := &signer{name: name}
	switch name {
	case SignerHMACBody:
		s.header, s.rotation, s.prefix = defaultBodyHeader, defaultBodyHeader+previousSuffix, defaultPrefix
	case SignerTimestamped:
		s.header = defaultTimestampedHeader
	case SignerSortedKV:
		s.kv = defaultKV(algHMAC)
	case SignerStandard, SignerStandardAsymmetric, SignerWeChatV3, SignerBasic, SignerBearer, SignerNone:
	default:
		return nil
	}
	return s
}

// signer reads a signer with options.
func (r *jsonReader) signer() *signer {
	node, _ := r.member(0, "type")
	if node == 0 {
		r.fail("type", "is missing: one of %s", strings.Join(Signers(), ", "))
		return nil
	}
	name, ok := r.one(node, "type", Signers()...)
	if !ok {
		return nil
	}
	s := defaultSigner(name)
	option := r.noOption
	switch name {
	case SignerHMACBody:
		option = r.bodyOption
	case SignerTimestamped:
		option = r.timestampedOption
	case SignerWeChatV3:
		option = r.weChatOption
	case SignerSortedKV:
		r.kvSigner(s)
		return s
	}
	rotation := false
	r.members(0, "", func(key, at string, v int32) {
		if key != "type" {
			option(s, key, at, v)
			rotation = rotation || key == "rotation_header"
		}
	})
	if name == SignerHMACBody && !rotation {
		s.rotation = s.header + previousSuffix
	}
	if s.rotation != "" && strings.EqualFold(s.rotation, s.header) {
		r.fail("rotation_header", "is another one than header")
	}
	return s
}

func (r *jsonReader) noOption(_ *signer, _, at string, _ int32) {
	r.fail(at, "is unknown; this signer has no options")
}

// bodyOption reads one option of hmac-sha256-body.
func (r *jsonReader) bodyOption(s *signer, key, at string, v int32) {
	switch key {
	case "header":
		s.header = r.headerName(v, at)
	case "rotation_header":
		s.rotation = r.optional(v, at, r.headerName)
	case "prefix":
		s.prefix = r.optional(v, at, r.headerText)
	case "encoding":
		encoding, _ := r.one(v, at, "hex", "base64")
		s.base64 = encoding == "base64"
	case "key":
		s.written = r.keyOption(v, at)
	default:
		r.unknown(at, "type", "header", "prefix", "encoding", "rotation_header", "key")
	}
}

// timestampedOption reads one option of t-v1.
func (r *jsonReader) timestampedOption(s *signer, key, at string, v int32) {
	switch key {
	case "header":
		s.header = r.headerName(v, at)
	case "key":
		s.written = r.keyOption(v, at)
	default:
		r.unknown(at, "type", "header", "key")
	}
}

// weChatOption reads one option of wechat-v3-rsa.
func (r *jsonReader) weChatOption(s *signer, key, at string, v int32) {
	if key != "mchid" {
		r.unknown(at, "type", "mchid")
		return
	}
	if s.mchid = ""; r.isEmptyText(v) {
		return
	}
	mchid, ok := r.textOf(v, at, maxSignerText)
	if ok && (len(mchid) > maxMchid || !isFieldText(mchid) || strings.ContainsAny(mchid, "_-")) {
		r.fail(at, "is 1 to %d letters and digits", maxMchid)
	}
	s.mchid = mchid
}

func (r *jsonReader) keyOption(v int32, at string) (written bool) {
	key, _ := r.one(v, at, "bytes", "written")
	return key == "written"
}

func (r *jsonReader) isEmptyText(v int32) bool { return r.kind(v) == jsonString && r.str(v) == "" }

// optional reads a text that may be empty, which says that the option is not used.
func (r *jsonReader) optional(v int32, at string, read func(v int32, at string) string) string {
	if r.isEmptyText(v) {
		return ""
	}
	return read(v, at)
}

// headerName reads the name of a header that a signer may set.
func (r *jsonReader) headerName(v int32, at string) string {
	name, ok := r.textOf(v, at, maxSignerText)
	if !ok {
		return ""
	}
	why := checkHeader(store.Header{Name: name})
	if strings.EqualFold(name, "Content-Type") {
		why = "Content-Type follows from the body"
	}
	if why != "" {
		r.fail(at, "cannot be set: %s", why)
	}
	return name
}

// headerText reads what may stand in a header's value.
func (r *jsonReader) headerText(v int32, at string) string {
	text, ok := r.textOf(v, at, maxSignerText)
	if ok && !isPrintable(text) {
		r.fail(at, "has characters that are not printable ASCII")
	}
	return text
}

// text returns the signer in its one spelling.
func (s *signer) text() string {
	w := newJSONWriter()
	w.text("type", s.name)
	d := defaultSigner(s.name)
	if s.header != d.header {
		w.text("header", s.header)
	}
	if s.prefix != d.prefix {
		w.text("prefix", s.prefix)
	}
	if s.base64 {
		w.text("encoding", "base64")
	}
	if s.name == SignerHMACBody && s.rotation != s.header+previousSuffix {
		w.text("rotation_header", s.rotation)
	}
	if s.written {
		w.text("key", "written")
	}
	if s.mchid != "" {
		w.text("mchid", s.mchid)
	}
	if s.name == SignerSortedKV {
		s.kv.write(w)
	}
	if w.members == 1 {
		return s.name
	}
	return string(w.end())
}

// kvSigner reads the options of sorted-kv.
func (r *jsonReader) kvSigner(s *signer) {
	if node, _ := r.member(0, "alg"); node != 0 {
		if alg, ok := r.one(node, "alg", string(algMD5), string(algHMAC), string(algRSA2)); ok {
			s.kv = defaultKV(kvAlg(alg))
		}
	}
	r.members(0, "", func(key, at string, v int32) {
		if key == "type" || key == "alg" {
			return
		}
		if s.kv.alg == algRSA2 && (key == "key_suffix" || key == "case") {
			r.fail(at, "does not go with rsa2: no key is appended, and its signature is in base64")
			return
		}
		r.kvOption(&s.kv, key, at, v)
	})
	if s.kv.signType != "" && s.kv.in == putHeader {
		r.fail("sign_type", "goes beside a signature in body or query only")
	}
	if s.kv.signType != "" && s.kv.name == signTypeField {
		r.fail("put.name", "is where sign_type goes")
	}
	r.freshFields(&s.kv)
}

// freshFields judges the names of the fields that are put among those that are signed.
func (r *jsonReader) freshFields(o *kvOptions) {
	for _, f := range [...]struct{ at, name string }{{"nonce", o.nonce}, {"time", o.time}} {
		switch f.name {
		case "":
		case o.name:
			r.fail(f.at, "is where the signature goes")
		case signTypeField:
			r.fail(f.at, "is where sign_type goes")
		}
	}
	if o.nonce != "" && o.nonce == o.time {
		r.fail("time", "is where nonce goes")
	}
	if len(r.wrong) == 0 && o.time == "" && o.timeFormat != timeUnix {
		r.fail("time_format", "goes with time only")
	}
}

func (r *jsonReader) kvOption(o *kvOptions, key, at string, v int32) {
	switch key {
	case "exclude":
		o.exclude = nil
		if r.kind(v) == jsonArray && r.first(v) == 0 {
			return // everything is signed
		}
		for i, c := range r.list(v, at, maxExcluded) {
			if name, ok := r.textOf(c, indexed(at, i), maxSignerText); ok {
				o.exclude = append(o.exclude, name)
			}
		}
	case "key_suffix":
		if o.suffix = ""; !r.isEmptyText(v) {
			o.suffix, _ = r.textOf(v, at, maxSignerText)
		}
	case "case":
		c, _ := r.one(v, at, "upper", "lower")
		o.lower = c == "lower"
	case "skip_empty":
		skip, _ := r.boolean(v, at)
		o.keepEmpty = !skip
	case "put":
		r.kvPut(o, v, at)
	case "sign_type":
		o.signType = r.optional(v, at, r.fieldText)
	case "nonce":
		o.nonce = r.optional(v, at, r.fieldText)
	case "time":
		o.time = r.optional(v, at, r.fieldText)
	case "time_format":
		format, _ := r.one(v, at, string(timeUnix), string(timeUnixMS), string(timeDateTime))
		o.timeFormat = kvTime(format)
	default:
		r.unknown(at, "type", "alg", "exclude", "key_suffix", "case", "skip_empty", "put", "sign_type", "nonce", "time", "time_format")
	}
}

func (r *jsonReader) kvPut(o *kvOptions, node int32, field string) {
	r.members(node, field, func(key, at string, v int32) {
		switch key {
		case "in":
			in, _ := r.one(v, at, string(putBody), string(putQuery), string(putHeader))
			o.in = putPlace(in)
		case "name":
			o.name = r.fieldText(v, at)
		default:
			r.unknown(at, "in", "name")
		}
	})
	if o.in == putHeader && o.name != "" {
		if why := checkHeader(store.Header{Name: o.name}); why != "" || strings.EqualFold(o.name, "Content-Type") {
			r.fail(within(field, "name"), "is no header that can be set")
		}
	}
}

// fieldText reads the name or the value of a field that is put into a form, into JSON or into XML as it is.
func (r *jsonReader) fieldText(v int32, at string) string {
	text, ok := r.textOf(v, at, maxSignerText)
	letter := ok && (lower(text[0]) >= 'a' && lower(text[0]) <= 'z' || text[0] == '_')
	if ok && (!letter || !isFieldText(text)) {
		r.fail(at, "is letters, digits, _ and -, the first a letter or _")
	}
	return text
}

func isFieldText(text string) bool {
	for i := range len(text) {
		c := text[i]
		if l := lower(c); (l < 'a' || l > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// write appends what differs from the defaults.
func (o *kvOptions) write(w *jsonWriter) {
	if o.alg != algHMAC {
		w.text("alg", string(o.alg))
	}
	d := defaultKV(o.alg)
	if !slices.Equal(o.exclude, d.exclude) {
		w.name("exclude")
		w.out = append(w.out, '[')
		for i, name := range o.exclude {
			if i > 0 {
				w.out = append(w.out, ',')
			}
			w.out = quoteJSON(w.out, name)
		}
		w.out = append(w.out, ']')
	}
	if o.suffix != d.suffix {
		w.text("key_suffix", o.suffix)
	}
	if o.lower {
		w.text("case", "lower")
	}
	if o.keepEmpty {
		w.name("skip_empty")
		w.out = append(w.out, "false"...)
	}
	if o.in != d.in || o.name != d.name {
		w.name("put")
		put := newJSONWriter()
		put.text("in", string(o.in))
		put.text("name", o.name)
		w.out = append(w.out, put.end()...)
	}
	if o.signType != "" {
		w.text("sign_type", o.signType)
	}
	if o.nonce != "" {
		w.text("nonce", o.nonce)
	}
	if o.time != "" {
		w.text("time", o.time)
	}
	if o.timeFormat != d.timeFormat {
		w.text("time_format", string(o.timeFormat))
	}
}
