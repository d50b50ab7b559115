package sign

import (
	"crypto/ed25519"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// VerifyAny says whether a request was signed with one of the secrets by a signer, which is a name or what ParseSigner returned: nil, or an
// error that is ErrHeaders, ErrTimestamp or ErrSignature, or that says that the signer or a secret cannot be used. The secrets are
// what the signer takes; where it has a key pair, the public key (ParseVerifierFor) is enough. Body is what arrived, and u where it
// arrived: sorted-kv may look at its query, wechat-v3-rsa with mchid signs it whole; nil: there is none. A zero tolerance means
// DefaultTolerance, a negative one does not look at the age; hmac-sha256-body, sorted-kv, basic and bearer sign no time that is looked at.
// Nothing is verified of none. The method, which wechat-v3-rsa with mchid signs too, is not given: GET, POST, PUT, PATCH and DELETE are
// all tried, so that who must tell them apart has to do that by other means.
func VerifyAny(signer string, secrets []Secret, h http.Header, u *url.URL, body []byte, tolerance time.Duration) error {
	s, err := readSigner(signer)
	if err != nil {
		return err
	}
	if s.name == None {
		return nil
	}
	if err := checkSecrets(secrets); err != nil {
		return err
	}
	switch s.name {
	case Standard:
		keys := make([][]byte, len(secrets))
		for i := range secrets {
			keys[i] = secrets[i].Key
		}
		return Verify(keys, h, body, tolerance)
	case StandardAsymmetric:
		return verifyV1a(secrets, h, body, tolerance)
	case HMACBody:
		return s.verifyBody(secrets, h, body)
	case Timestamped:
		return s.verifyTimestamped(secrets, h, body, tolerance)
	case SortedKV:
		return s.kv.verify(secrets, h, u, body)
	case WeChatV3:
		if s.mchid != "" {
			return s.verifyMerchant(secrets, h, u, body, tolerance)
		}
		return verifyWeChatV3(secrets, h, body, tolerance)
	}
	return s.verifyAuthorization(secrets, h)
}

// matches compares in constant time.
func matches(got, want string) bool {
	return subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

func verifyV1a(secrets []Secret, h http.Header, body []byte, tolerance time.Duration) error {
	id, seconds, signatures, err := standardHeaders(h, tolerance)
	if err != nil {
		return err
	}
	text := append([]byte(id+"."+seconds+"."), body...)
	for i := range secrets {
		public, err := publicEd25519(secrets[i].Key)
		if err != nil {
			return err
		}
		for signature := range strings.SplitSeq(signatures, " ") {
			version, encoded, ok := strings.Cut(signature, ",")
			if !ok || version != "v1a" {
				continue
			}
			raw, err := base64.StdEncoding.DecodeString(encoded)
			if err == nil && ed25519.Verify(public, text, raw) {
				return nil
			}
		}
	}
	return ErrSignature
}

// verifyBody looks at both headers: during a rotation the receiver has the one secret or the other.
func (s *signer) verifyBody(secrets []Secret, h http.Header, body []byte) error {
	present := h.Get(s.header)
	if present == "" {
		return fmt.Errorf("%w: no %s", ErrHeaders, strings.ToLower(s.header))
	}
	for i := range secrets {
		want := s.bodyMAC(secrets[i].Key, body)
		if matches(present, want) || s.rotation != "" && matches(h.Get(s.rotation), want) {
			return nil
		}
	}
	return ErrSignature
}

func (s *signer) verifyTimestamped(secrets []Secret, h http.Header, body []byte, tolerance time.Duration) error {
	value := h.Get(s.header)
	var seconds string
	var macs []string
	for part := range strings.SplitSeq(value, ",") {
		switch name, v, _ := strings.Cut(part, "="); name {
		case "t":
			seconds = v
		case "v1":
			macs = append(macs, v)
		}
	}
	if seconds == "" || len(macs) == 0 {
		return fmt.Errorf("%w: %s is missing or has no t or v1", ErrHeaders, strings.ToLower(s.header))
	}
	if err := checkSeconds(seconds, s.header, tolerance); err != nil {
		return err
	}
	for i := range secrets {
		want := s.timestampedMAC(secrets[i].Key, seconds, body)
		for _, mac := range macs {
			if matches(mac, want) {
				return nil
			}
		}
	}
	return ErrSignature
}

// checkSeconds judges a timestamp as it is written.
func checkSeconds(seconds, header string, tolerance time.Duration) error {
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: the timestamp of %s is not a number of seconds", ErrHeaders, strings.ToLower(header))
	}
	return checkAge(time.Unix(at, 0), tolerance)
}

func verifyRSA(secrets []Secret, text, signature string) error {
	for i := range secrets {
		public, err := publicRSA(secrets[i].Key)
		if err != nil {
			return err
		}
		if verifiesSHA256(public, text, signature) {
			return nil
		}
	}
	return ErrSignature
}

func (s *signer) verifyAuthorization(secrets []Secret, h http.Header) error {
	got := h.Get("Authorization")
	if got == "" {
		return fmt.Errorf("%w: no authorization", ErrHeaders)
	}
	for i := range secrets {
		want := "Bearer " + string(secrets[i].Key)
		if s.name == Basic {
			want = "Basic " + base64.StdEncoding.EncodeToString(secrets[i].Key)
		}
		if matches(got, want) {
			return nil
		}
	}
	return ErrSignature
}

// verify looks for the signature where the options put it.
func (o *kvOptions) verify(secrets []Secret, h http.Header, u *url.URL, body []byte) error {
	if u == nil {
		u = new(url.URL)
	}
	source, err := kvSource(h.Get("Content-Type"), body, u.RawQuery)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSignature, err)
	}
	fields := source.fields
	var signature string
	switch o.in {
	case putHeader:
		signature = h.Get(o.name)
	case putQuery:
		query, err := formFields(u.RawQuery)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrSignature, err)
		}
		signature = query.value(o.name)
		if o.signType != "" && len(body) > 0 {
			fields = append(fields, kvField{signTypeField, query.value(signTypeField)})
		}
	default:
		signature = source.value(o.name)
	}
	if signature == "" {
		return fmt.Errorf("%w: no %s in the %s", ErrHeaders, o.name, o.in)
	}
	plain := o.plain(fields)
	if o.alg == algRSA2 {
		return verifyRSA(secrets, plain, signature)
	}
	for i := range secrets {
		if matches(signature, o.digest(plain, secrets[i].Key)) {
			return nil
		}
	}
	return ErrSignature
}

// value returns the value of a field; "": it is empty, or there is none.
func (f *kvFields) value(name string) string {
	for _, field := range f.fields {
		if field.name == name {
			return field.value
		}
	}
	return ""
}
