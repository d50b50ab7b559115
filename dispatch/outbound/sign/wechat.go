package sign

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// The headers of WeChat Pay v3, and the scheme of Authorization in requests to it.
const (
	weChatTimestamp = "Wechatpay-Timestamp"
	weChatNonce     = "Wechatpay-Nonce"
	weChatSignature = "Wechatpay-Signature"
	weChatSerial    = "Wechatpay-Serial"
	weChatType      = "Wechatpay-Signature-Type"
	weChatTypeValue = "WECHATPAY2-SHA256-RSA2048"
)

// weChatText returns the text that WeChat Pay v3 signs in its notifications.
func weChatText(seconds, nonce string, body []byte) string {
	return seconds + "\n" + nonce + "\n" + string(body) + "\n"
}

// weChatTarget returns the text that precedes weChatText in a merchant's request.
func weChatTarget(method string, u *url.URL) string {
	return method + "\n" + u.RequestURI() + "\n"
}

// weChat is the signer wechat-v3-rsa. Without Mchid it signs as WeChat Pay signs its notifications. With
// Mchid it signs as that merchant signs its requests.
type weChat struct {
	Type  string   `json:"type" most:"64"`
	Mchid merchant `json:"mchid" empty:"ok"`
}

// A merchant is the number of a merchant.
type merchant string

// maxMchid is the maximum length of a merchant's number.
const maxMchid = 32

// ReadSetting parses a merchant's number.
func (m *merchant) ReadSetting(s parse.Setting) {
	text, ok := s.Text(maxText)
	*m = merchant(text)
	if ok && (len(text) > maxMchid || !isFieldText(text) || strings.ContainsAny(text, "_-")) {
		s.Fail("must be 1 to %d letters and digits", maxMchid)
	}
}

func newWeChat() options { return &weChat{Type: WeChatV3} }

func (*weChat) defaults() options { return newWeChat() }

func (*weChat) use() string { return UseRSA }

// sign signs with the current secret only. The serial number that it sends is the label of the secret, or
// else its ID.
func (s *weChat) sign(c *Cache, r *Request) (Signature, error) {
	present := &r.Secrets[0]
	key, err := c.rsaKey(present.Key)
	if err != nil {
		return Signature{}, err
	}
	nonce := rand.Text()
	text := weChatText(r.Seconds, nonce, r.Body)
	if s.Mchid != "" {
		text = weChatTarget(r.Method, r.URL) + text
	}
	value, err := signSHA256(key, text)
	if err != nil {
		return Signature{}, err
	}
	serial := present.Label
	if serial == "" {
		serial = present.ID
	}
	if !parse.IsPrintable(serial) || s.Mchid != "" && strings.ContainsAny(serial, `"\,`) {
		return Signature{}, &KeyError{"the signing key's label is not valid in a header"}
	}
	out := Signature{KeyID: present.ID, Hidden: []string{value}}
	if s.Mchid != "" {
		out.Headers = []AddedHeader{{"Authorization",
			fmt.Sprintf(`%s mchid="%s",nonce_str="%s",signature="%s",timestamp="%s",serial_no="%s"`,
				weChatTypeValue, s.Mchid, nonce, value, r.Seconds, serial), true}}
		return out, nil
	}
	out.Headers = []AddedHeader{
		{weChatTimestamp, r.Seconds, false}, {weChatNonce, nonce, false}, {weChatSerial, serial, false},
		{weChatType, weChatTypeValue, false}, {weChatSignature, value, true},
	}
	return out, nil
}

func (s *weChat) verify(in *receivedRequest) error {
	if s.Mchid != "" {
		return s.verifyMerchant(in)
	}
	values, err := in.requireHeaders(weChatTimestamp, weChatNonce, weChatSignature)
	if err != nil {
		return err
	}
	if err := in.checkSeconds(values[0], weChatTimestamp); err != nil {
		return err
	}
	return in.verifyRSA(weChatText(values[0], values[1], in.body), values[2])
}

// verifyMerchant verifies a merchant's request. It does not know the method, so it tries the usual ones.
func (s *weChat) verifyMerchant(in *receivedRequest) error {
	given, ok := strings.CutPrefix(in.header.Get("Authorization"), weChatTypeValue+" ")
	if !ok {
		return fmt.Errorf("%w: no authorization header with scheme %s", ErrHeaders, weChatTypeValue)
	}
	params := make(map[string]string)
	for param := range strings.SplitSeq(given, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		params[name] = strings.Trim(value, `"`)
	}
	for _, name := range [...]string{"mchid", "nonce_str", "signature", "timestamp"} {
		if params[name] == "" {
			return fmt.Errorf("%w: no %s in authorization", ErrHeaders, name)
		}
	}
	if err := in.checkSeconds(params["timestamp"], "Authorization"); err != nil {
		return err
	}
	if params["mchid"] != string(s.Mchid) {
		return fmt.Errorf("%w: mchid differs from the signer's", ErrSignature)
	}
	text := weChatText(params["timestamp"], params["nonce_str"], in.body)
	for _, method := range [...]string{
		http.MethodPost, http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete,
	} {
		err := in.verifyRSA(weChatTarget(method, in.url)+text, params["signature"])
		if !errors.Is(err, ErrSignature) {
			return err // verified, or the key cannot be used
		}
	}
	return ErrSignature
}

// signSHA256 returns the base64 of RSA-SHA256 (PKCS #1 v1.5).
func signSHA256(key *rsa.PrivateKey, text string) (string, error) {
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", &KeyError{"signing with the RSA key failed"}
	}
	return base64.StdEncoding.EncodeToString(signature), nil
}

// verifiesSHA256 reports whether a signature of signSHA256 matches.
func verifiesSHA256(key *rsa.PublicKey, text, signature string) bool {
	raw, err := base64.StdEncoding.DecodeString(signature)
	sum := sha256.Sum256([]byte(text))
	return err == nil && rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], raw) == nil
}

func (in *receivedRequest) verifyRSA(text, signature string) error {
	return in.verifyAny(func(key []byte) (bool, error) {
		public, err := publicRSA(key)
		return err == nil && verifiesSHA256(public, text, signature), err
	})
}
