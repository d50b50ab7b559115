package sign

import (
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
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

// A signerReader reads signers.
type signerReader struct{ *parse.Reader }

// ParseSigner reads a signer: a JSON string, its name, or an object {"type": …} with its options (SignerInfos tells them). It returns the text
// that Request.Signer takes: the bare name where no option differs from its default, else compact JSON with its members in a fixed
// order. What is wrong is named relative to the signer, as "put.name"; the field "" is the signer itself.
func Parse(raw []byte) (string, []store.FieldError) {
	s, wrong := compileSigner(raw)
	if len(wrong) > 0 {
		return "", wrong
	}
	return s.text(), nil
}

func compileSigner(raw []byte) (*signer, []store.FieldError) {
	r := &signerReader{parse.NewReader(raw)}
	if len(r.Wrong) > 0 {
		return nil, r.Wrong
	}
	var s *signer
	switch r.Kind(0) {
	case parse.String:
		if s = defaultSigner(r.Str(0)); s == nil {
			r.Fail("", "is one of %s", strings.Join(Names(), ", "))
		}
	case parse.Object:
		s = r.signer()
	default:
		r.Fail("", `is a name or an object with a "type"`)
	}
	return s, r.Wrong
}

// defaultSigner returns a signer with nothing but defaults; nil: there is none of that name.
func defaultSigner(name string) *signer {
	s := &signer{name: name}
	switch name {
	case HMACBody:
		s.header, s.rotation, s.prefix = defaultBodyHeader, defaultBodyHeader+previousSuffix, defaultPrefix
	case Timestamped:
		s.header = defaultTimestampedHeader
	case SortedKV:
		s.kv = defaultKV(algHMAC)
	case Standard, StandardAsymmetric, WeChatV3, Basic, Bearer, None:
	default:
		return nil
	}
	return s
}

// signer reads a signer with options.
func (r *signerReader) signer() *signer {
	node := r.named("type")
	if node == 0 {
		r.Fail("type", "is missing: one of %s", strings.Join(Names(), ", "))
		return nil
	}
	name, ok := r.One(node, "type", Names()...)
	if !ok {
		return nil
	}
	s := defaultSigner(name)
	option := r.noOption
	switch name {
	case HMACBody:
		option = r.bodyOption
	case Timestamped:
		option = r.timestampedOption
	case WeChatV3:
		option = r.weChatOption
	case SortedKV:
		r.kvSigner(s)
		return s
	}
	rotation := false
	r.Members(0, "", func(key, at string, v int32) {
		if key != "type" {
			option(s, key, at, v)
			rotation = rotation || key == "rotation_header"
		}
	})
	if name == HMACBody && !rotation {
		s.rotation = s.header + previousSuffix
	}
	if s.rotation != "" && strings.EqualFold(s.rotation, s.header) {
		r.Fail("rotation_header", "is another one than header")
	}
	return s
}

// named returns the signer's first member of a name; 0: there is none.
func (r *signerReader) named(name string) int32 {
	for c := r.First(0); c != 0; c = r.Next(c) {
		if r.Key(c) == name {
			return c
		}
	}
	return 0
}

func (r *signerReader) noOption(_ *signer, _, at string, _ int32) {
	r.Fail(at, "is unknown; this signer has no options")
}

// bodyOption reads one option of hmac-sha256-body.
func (r *signerReader) bodyOption(s *signer, key, at string, v int32) {
	switch key {
	case "header":
		s.header = r.headerName(v, at)
	case "rotation_header":
		s.rotation = r.optional(v, at, r.headerName)
	case "prefix":
		s.prefix = r.optional(v, at, r.headerText)
	case "encoding":
		encoding, _ := r.One(v, at, "hex", "base64")
		s.base64 = encoding == "base64"
	case "key":
		s.written = r.keyOption(v, at)
	default:
		r.Unknown(at, "type", "header", "prefix", "encoding", "rotation_header", "key")
	}
}

// timestampedOption reads one option of t-v1.
func (r *signerReader) timestampedOption(s *signer, key, at string, v int32) {
	switch key {
	case "header":
		s.header = r.headerName(v, at)
	case "key":
		s.written = r.keyOption(v, at)
	default:
		r.Unknown(at, "type", "header", "key")
	}
}

// weChatOption reads one option of wechat-v3-rsa.
func (r *signerReader) weChatOption(s *signer, key, at string, v int32) {
	if key != "mchid" {
		r.Unknown(at, "type", "mchid")
		return
	}
	if s.mchid = ""; r.isEmptyText(v) {
		return
	}
	mchid, ok := r.TextOf(v, at, maxSignerText)
	if ok && (len(mchid) > maxMchid || !isFieldText(mchid) || strings.ContainsAny(mchid, "_-")) {
		r.Fail(at, "is 1 to %d letters and digits", maxMchid)
	}
	s.mchid = mchid
}

func (r *signerReader) keyOption(v int32, at string) (written bool) {
	key, _ := r.One(v, at, "bytes", "written")
	return key == "written"
}

func (r *signerReader) isEmptyText(v int32) bool { return r.Kind(v) == parse.String && r.Str(v) == "" }

// optional reads a text that may be empty, which says that the option is not used.
func (r *signerReader) optional(v int32, at string, read func(v int32, at string) string) string {
	if r.isEmptyText(v) {
		return ""
	}
	return read(v, at)
}

// headerName reads the name of a header that a signer may set.
func (r *signerReader) headerName(v int32, at string) string {
	name, ok := r.TextOf(v, at, maxSignerText)
	if !ok {
		return ""
	}
	why := CheckHeader(store.Header{Name: name})
	if strings.EqualFold(name, "Content-Type") {
		why = "Content-Type follows from the body"
	}
	if why != "" {
		r.Fail(at, "cannot be set: %s", why)
	}
	return name
}

// headerText reads what may stand in a header's value.
func (r *signerReader) headerText(v int32, at string) string {
	text, ok := r.TextOf(v, at, maxSignerText)
	if ok && !parse.IsPrintable(text) {
		r.Fail(at, "has characters that are not printable ASCII")
	}
	return text
}

// text returns the signer in its one spelling.
func (s *signer) text() string {
	w := parse.NewWriter()
	w.Text("type", s.name)
	d := defaultSigner(s.name)
	if s.header != d.header {
		w.Text("header", s.header)
	}
	if s.prefix != d.prefix {
		w.Text("prefix", s.prefix)
	}
	if s.base64 {
		w.Text("encoding", "base64")
	}
	if s.name == HMACBody && s.rotation != s.header+previousSuffix {
		w.Text("rotation_header", s.rotation)
	}
	if s.written {
		w.Text("key", "written")
	}
	if s.mchid != "" {
		w.Text("mchid", s.mchid)
	}
	if s.name == SortedKV {
		s.kv.write(w)
	}
	if w.Members == 1 {
		return s.name
	}
	return string(w.End())
}

// kvSigner reads the options of sorted-kv.
func (r *signerReader) kvSigner(s *signer) {
	if node := r.named("alg"); node != 0 {
		if alg, ok := r.One(node, "alg", string(algMD5), string(algHMAC), string(algRSA2)); ok {
			s.kv = defaultKV(kvAlg(alg))
		}
	}
	r.Members(0, "", func(key, at string, v int32) {
		if key == "type" || key == "alg" {
			return
		}
		if s.kv.alg == algRSA2 && (key == "key_suffix" || key == "case") {
			r.Fail(at, "does not go with rsa2: no key is appended, and its signature is in base64")
			return
		}
		r.kvOption(&s.kv, key, at, v)
	})
	if s.kv.signType != "" && s.kv.in == putHeader {
		r.Fail("sign_type", "goes beside a signature in body or query only")
	}
	if s.kv.signType != "" && s.kv.name == signTypeField {
		r.Fail("put.name", "is where sign_type goes")
	}
	r.freshFields(&s.kv)
}

// freshFields judges the names of the fields that are put among those that are signed.
func (r *signerReader) freshFields(o *kvOptions) {
	for _, f := range [...]struct{ at, name string }{{"nonce", o.nonce}, {"time", o.time}} {
		switch f.name {
		case "":
		case o.name:
			r.Fail(f.at, "is where the signature goes")
		case signTypeField:
			r.Fail(f.at, "is where sign_type goes")
		}
	}
	if o.nonce != "" && o.nonce == o.time {
		r.Fail("time", "is where nonce goes")
	}
	if len(r.Wrong) == 0 && o.time == "" && o.timeFormat != timeUnix {
		r.Fail("time_format", "goes with time only")
	}
}

func (r *signerReader) kvOption(o *kvOptions, key, at string, v int32) {
	switch key {
	case "exclude":
		o.exclude = nil
		if r.Kind(v) == parse.Array && r.First(v) == 0 {
			return // everything is signed
		}
		for i, c := range r.List(v, at, maxExcluded) {
			if name, ok := r.TextOf(c, parse.Indexed(at, i), maxSignerText); ok {
				o.exclude = append(o.exclude, name)
			}
		}
	case "key_suffix":
		if o.suffix = ""; !r.isEmptyText(v) {
			o.suffix, _ = r.TextOf(v, at, maxSignerText)
		}
	case "case":
		c, _ := r.One(v, at, "upper", "lower")
		o.lower = c == "lower"
	case "skip_empty":
		skip, _ := r.Boolean(v, at)
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
		format, _ := r.One(v, at, string(timeUnix), string(timeUnixMS), string(timeDateTime))
		o.timeFormat = kvTime(format)
	default:
		r.Unknown(at, "type", "alg", "exclude", "key_suffix", "case", "skip_empty", "put", "sign_type", "nonce", "time", "time_format")
	}
}

func (r *signerReader) kvPut(o *kvOptions, node int32, field string) {
	r.Members(node, field, func(key, at string, v int32) {
		switch key {
		case "in":
			in, _ := r.One(v, at, string(putBody), string(putQuery), string(putHeader))
			o.in = putPlace(in)
		case "name":
			o.name = r.fieldText(v, at)
		default:
			r.Unknown(at, "in", "name")
		}
	})
	if o.in == putHeader && o.name != "" {
		if why := CheckHeader(store.Header{Name: o.name}); why != "" || strings.EqualFold(o.name, "Content-Type") {
			r.Fail(parse.Within(field, "name"), "is no header that can be set")
		}
	}
}

// fieldText reads the name or the value of a field that is put into a form, into JSON or into XML as it is.
func (r *signerReader) fieldText(v int32, at string) string {
	text, ok := r.TextOf(v, at, maxSignerText)
	letter := ok && (parse.Lower(text[0]) >= 'a' && parse.Lower(text[0]) <= 'z' || text[0] == '_')
	if ok && (!letter || !isFieldText(text)) {
		r.Fail(at, "is letters, digits, _ and -, the first a letter or _")
	}
	return text
}

func isFieldText(text string) bool {
	for i := range len(text) {
		c := text[i]
		if l := parse.Lower(c); (l < 'a' || l > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// write appends what differs from the defaults.
func (o *kvOptions) write(w *parse.Writer) {
	if o.alg != algHMAC {
		w.Text("alg", string(o.alg))
	}
	d := defaultKV(o.alg)
	if !slices.Equal(o.exclude, d.exclude) {
		w.Name("exclude")
		w.Out = append(w.Out, '[')
		for i, name := range o.exclude {
			if i > 0 {
				w.Out = append(w.Out, ',')
			}
			w.Out = parse.Quote(w.Out, name)
		}
		w.Out = append(w.Out, ']')
	}
	if o.suffix != d.suffix {
		w.Text("key_suffix", o.suffix)
	}
	if o.lower {
		w.Text("case", "lower")
	}
	if o.keepEmpty {
		w.Name("skip_empty")
		w.Out = append(w.Out, "false"...)
	}
	if o.in != d.in || o.name != d.name {
		w.Name("put")
		put := parse.NewWriter()
		put.Text("in", string(o.in))
		put.Text("name", o.name)
		w.Out = append(w.Out, put.End()...)
	}
	if o.signType != "" {
		w.Text("sign_type", o.signType)
	}
	if o.nonce != "" {
		w.Text("nonce", o.nonce)
	}
	if o.time != "" {
		w.Text("time", o.time)
	}
	if o.timeFormat != d.timeFormat {
		w.Text("time_format", string(o.timeFormat))
	}
}
