package outbound

// NameOf returns the name of a signer that ParseSigner has returned, without its options. Empty means SignerStandard.
func NameOf(signer string) (string, error) {
	switch signer {
	case "":
		return SignerStandard, nil
	case SignerStandard, SignerHMACBody, SignerTimestamped, SignerBasic, SignerBearer, SignerNone:
		return signer, nil
	}
	s, err := readSigner(signer)
	if err != nil {
		return "", err
	}
	return s.name, nil
}

// SendsSecret says whether a signer of that name sends its secret itself, so that the receiver has it then.
func SendsSecret(name string) bool { return name == SignerBasic || name == SignerBearer }

// IsPrivate says whether secrets of a use are private keys: one signs for every receiver alike, and none of them has it.
func IsPrivate(use string) bool { return use == UseRSA || use == UseEd25519 }
